"""H2Connection: frames in, streams found, and everything that belongs to stream 0.

Law: a fault of one stream resets that stream; only a fault of the
connection ends the connection. A header block is always decoded, even for a
stream that is gone, or the table would fall out of step. Work per frame is
O(1), but for SETTINGS, which pays for the streams it touches.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.errors import ProtocolError, report_fault
from proxy.core.reactor import Clock
from proxy.core.reason import Reason
from proxy.core.timers import Wheel
from proxy.http.h2 import alarms, control, frame
from proxy.http.h2.alarms import Alarms
from proxy.http.h2.codes import NO_ERROR, code_of
from proxy.http.h2.flow import Credit, overrun
from proxy.http.h2.frame import ACK, END_HEADERS, END_STREAM, PADDED, PRIORITY_FLAG, header_struct, u32_struct
from proxy.http.h2.hpack import Decoder, Encoder
from proxy.http.h2.settings import H2Settings, PeerSettings
from proxy.http.h2.stream import REMOTE_ENDED, H2Stream
from proxy.http.h2.toll import Toll

_unpack_header: Final = header_struct.unpack_from

SELF_DEPENDENT: Final = 256
"""Beside the flags of a HEADERS frame: its stream depends on itself (RFC 9113 section 5.3.2 keeps the rule's form)."""

_FRAMING_FLAGS: Final = END_HEADERS | PADDED | PRIORITY_FLAG
_NO_BLOCK: Final = 0
_NO_SETTINGS: Final = -1
"""`_block_id` until the peer's SETTINGS, which must come first (RFC 9113 section 3.4)."""


class H2Connection:
    __slots__ = (
        "wire", "settings", "peer", "is_client", "is_writable", "is_over", "is_going_away", "last_id", "send_window",
        "peer_window", "stream_window", "streams", "blocked", "encoder", "decoder", "control", "resets", "is_full",
        "alarms", "has_heard",
        "_buffer", "_preface", "_max_frame_bytes", "_credit", "_block", "_block_id", "_block_flags", "_block_frames", "_clock",
    )  # fmt: skip

    def __init__(
        self, wire: Wire, settings: H2Settings, wheel: Wheel | None, clock: Clock | None, is_client: bool
    ) -> None:
        self.wire = wire
        self.settings = settings
        self.peer = PeerSettings()
        self.is_client = is_client
        self.is_writable = True
        self.is_over = False
        self.is_going_away = False
        """No stream beyond the last announced is served."""
        self.last_id = 0
        """The highest stream that the client side opened."""
        self.send_window = frame.DEFAULT_WINDOW
        self.peer_window = frame.DEFAULT_WINDOW
        """SETTINGS_INITIAL_WINDOW_SIZE of the peer."""
        self.stream_window = max(settings.stream_window_bytes, frame.DEFAULT_WINDOW)
        """What the peer may send on a new stream: the protocol's default until it acknowledged a smaller one."""
        self.streams: dict[int, H2Stream] = {}
        self.blocked: OrderedDict[H2Stream, None] = OrderedDict()
        """Streams with unsent data that only the connection's window or the socket holds up, longest waiting first."""
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.control: Toll | None = None
        """Made by the first frame that carries nothing, settled (dropped) by the next that does or a stream that ends."""
        self.resets: Toll | None = None
        """Made by the first stream that ends early; two for each, one back for every stream that ends (servers)."""
        self.is_full = False
        self.alarms = Alarms(self, wheel)
        self.has_heard = False
        """Bytes came since keepalive last looked."""
        self._buffer = b""
        self._max_frame_bytes = settings.max_frame_bytes
        self._preface = b"" if is_client else frame.PREFACE
        """What must come before the first frame."""
        window_bytes = max(settings.connection_window_bytes, frame.DEFAULT_WINDOW)
        self._credit = Credit(window_bytes, window_bytes)
        self._block = b""
        self._block_id = _NO_SETTINGS
        """A stream whose header block goes on in CONTINUATION, or _NO_BLOCK."""
        self._block_flags = 0
        self._block_frames = 0
        self._clock: Clock | None = wheel.now if clock is None and wheel is not None else clock
        wire.write(settings.opening(is_client))
        if settings.keepalive_interval_s is not None:
            self.alarms.arm(alarms.KEEPALIVE, settings.keepalive_interval_s)

    # ---- Codec

    def feed(self, data: bytes) -> None:
        if self.is_over:
            return
        self.has_heard = True
        if self._buffer:
            data = self._buffer + data
        try:
            self._buffer = self._read_frames(data)
        except ProtocolError as error:
            self.fail(error.reason)

    def eof(self) -> None:
        self.retire()
        control.end_streams(self, Reason.PEER_CLOSED)
        self.wire.abort(Reason.PEER_CLOSED)

    def writable(self, is_writable: bool) -> None:
        self.is_writable = is_writable
        if is_writable:
            self.pump_blocked()

    def lost(self, reason: Reason) -> None:
        self.is_over = True
        self.is_going_away = True
        self.alarms.clear()
        self.retire()
        control.end_streams(self, reason)

    # ---- for streams

    def take(self, size: int) -> None:
        """Credit for DATA that was taken or thrown away."""
        credit = self._credit
        credit.taken += size
        if credit.taken >= credit.batch:
            self.wire.write(frame.window_update(0, credit.give_back()))

    def forget(self, stream: H2Stream) -> None:
        """The stream is closed."""
        self.streams.pop(stream.id, None)
        if stream.queue is not None or stream.held:
            self.blocked.pop(stream, None)
            self.take(stream.discard())
        self.control = None
        if self.resets is not None and self.resets.spent > 0:
            self.resets.spent -= 1
        if self.is_full:
            self.room_came()
        if self.is_going_away and not self.streams:
            self.end_if_idle()

    def note_reset(self, stream_id: int) -> None:
        """We reset this stream: frames of it may still come."""

    def alarm(self, kind: int) -> None:
        control.alarm(self, kind)

    # ---- what the roles add

    def close(self) -> None:
        raise NotImplementedError

    def receive_block(self, block: bytes, flags: int, stream_id: int) -> None:
        raise NotImplementedError

    def receive_goaway(self, last_id: int, code: int) -> None:
        """The peer serves nothing beyond this stream."""

    def receive_pong(self, payload: bytes) -> None:
        """The answer to a PING of ours."""

    def settings_changed(self) -> None:
        """The peer's settings were applied."""

    def room_came(self) -> None:
        """A stream ended on a full connection."""

    def retire(self) -> None:
        """Nobody may open a stream here any more; said before streams are ended."""

    def go_away(self) -> None:
        """The last GOAWAY: no stream after those that are here."""

    def closed_stream(self, stream_id: int) -> None:
        """DATA on a stream that is over."""

    def charge_reset(self) -> None:
        """A stream ended early, by the peer's doing."""

    # ---- frames

    def _read_frames(self, data: bytes) -> bytes:
        position = 0
        size = len(data)
        if self._preface:
            if not data.startswith(self._preface[:size]):
                raise ProtocolError("no HTTP/2 preface")
            if size < len(self._preface):
                return data
            position = len(self._preface)
            self._preface = b""
        while size - position >= 9 and not self.is_over:
            length_and_kind, flags, stream_id = _unpack_header(data, position)
            length = length_and_kind >> 8
            if length > self._max_frame_bytes:
                raise ProtocolError(f"frame of {length} octets", Reason.FRAME_SIZE)
            start = position + 9
            end = start + length
            if end > size:
                break
            kind = length_and_kind & 255
            stream_id &= 0x7FFFFFFF
            if self._block_id:
                self._check_order(kind, flags, stream_id)
            if kind == frame.DATA:
                self._receive_data(data, start, end, flags, stream_id)
            elif kind == frame.HEADERS and flags & _FRAMING_FLAGS == END_HEADERS and stream_id:
                self.receive_block(data[start:end], flags, stream_id)
            elif kind == frame.HEADERS:
                self._receive_headers(data[start:end], flags, stream_id)
            elif kind == frame.WINDOW_UPDATE:
                self._receive_window_update(data, start, length, stream_id)
            else:
                self._receive_rare(kind, flags, stream_id, data[start:end])
            position = end
        return data[position:] if position < size else b""

    def _check_order(self, kind: int, flags: int, stream_id: int) -> None:
        if self._block_id == _NO_SETTINGS:
            if kind != frame.SETTINGS or flags & ACK:
                raise ProtocolError("the first frame is not SETTINGS")
            self._block_id = _NO_BLOCK
            self.alarms.disarm(alarms.OPENING)
        elif kind != frame.CONTINUATION or stream_id != self._block_id:
            raise ProtocolError("header block interrupted")

    def _receive_data(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
        size = end - start
        payload = data[start:end]
        if flags & PADDED:
            payload = frame.unpadded(payload, PADDED)
        window = self._credit.window = self._credit.window - size
        if window < 0:
            raise overrun()
        stream = self.streams.get(stream_id)
        if stream is None:
            self.check_known(stream_id)
            if not payload:
                control.charge(self, 1)
            self.take(size)
            self.closed_stream(stream_id)
            return
        if stream.state >= REMOTE_ENDED:
            self.take(size)
            self.reset_stream(stream, Reason.STREAM_CLOSED)
            return
        if not payload and not flags & END_STREAM:
            control.charge(self, 1)
        else:
            self.control = None
        try:
            stream.receive_data(payload, size, flags & END_STREAM != 0)
        except ProtocolError as error:
            self.reset_stream(stream, error.reason)
        except Exception:
            report_fault()
            self.reset_stream(stream, Reason.INTERNAL)

    def _receive_headers(self, payload: bytes, flags: int, stream_id: int) -> None:
        if not stream_id:
            raise ProtocolError("HEADERS on stream 0")
        if flags & (PADDED | PRIORITY_FLAG):
            unpadded = frame.unpadded(payload, flags)
            if flags & PRIORITY_FLAG and control.dependency(payload, 1 if flags & PADDED else 0) == stream_id:
                flags |= SELF_DEPENDENT
            payload = unpadded
        if flags & END_HEADERS:
            self.receive_block(payload, flags, stream_id)
        else:
            self._block = payload
            self._block_id = stream_id
            self._block_flags = flags
            self._block_frames = 0
            self.alarms.arm(alarms.OPENING, limits.OPENING_S)

    def _receive_continuation(self, payload: bytes, flags: int, stream_id: int) -> None:
        if self._block_id != stream_id or not stream_id:
            raise ProtocolError("CONTINUATION without HEADERS")
        self._block_frames += 1
        if len(self._block) + len(payload) > limits.HEADER_BLOCK_BYTES or self._block_frames > limits.CONTINUATIONS:
            raise ProtocolError("header block without end", Reason.HEADER_FLOOD)
        self._block += payload
        if flags & END_HEADERS:
            block = self._block
            self._block = b""
            self._block_id = _NO_BLOCK
            self.alarms.disarm(alarms.OPENING)
            self.receive_block(block, self._block_flags, stream_id)

    def _receive_window_update(self, data: bytes, start: int, length: int, stream_id: int) -> None:
        if length != 4:
            raise ProtocolError("WINDOW_UPDATE is not 4 octets", Reason.FRAME_SIZE)
        increment: int = u32_struct.unpack_from(data, start)[0] & frame.WINDOW_LIMIT
        if stream_id == 0:
            self.send_window += increment
            if not increment:
                raise ProtocolError("window increment of 0")
            if self.send_window > frame.WINDOW_LIMIT:
                raise ProtocolError("window over 2^31-1", Reason.FLOW_CONTROL)
            self.pump_blocked()
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            self.check_known(stream_id)
            control.charge(self, 1)
            return
        stream.send_window += increment
        if not increment:
            self.reset_stream(stream, Reason.PROTOCOL_ERROR)
        elif stream.send_window > frame.WINDOW_LIMIT:
            self.reset_stream(stream, Reason.FLOW_CONTROL)
        elif stream.has_unsent():
            self.pump(stream)

    def _receive_rare(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == frame.RST_STREAM:
            control.receive_rst_stream(self, payload, stream_id)
        elif kind == frame.CONTINUATION:
            self._receive_continuation(payload, flags, stream_id)
        else:
            control.charge(self, 1)
            control.receive(self, kind, flags, stream_id, payload)

    # ---- faults and pumping

    def check_known(self, stream_id: int) -> None:
        if not stream_id & 1 or stream_id > self.last_id:
            raise ProtocolError(f"frame on stream {stream_id}, which was never opened")

    def now(self) -> float:
        clock = self._clock
        return clock() if clock is not None else 0.0

    def reset_stream(self, stream: H2Stream, reason: Reason) -> None:
        """The stream is at fault."""
        stream.fail(reason)
        self.charge_reset()

    def fail(self, reason: Reason) -> None:
        """The connection is at fault, or silent."""
        if self.is_over:
            return
        self.is_over = True
        self.is_going_away = True
        self._buffer = b""
        self.alarms.clear()
        self.wire.write(frame.goaway(0 if self.is_client else self.last_id, code_of(reason)))
        self.retire()
        control.end_streams(self, reason)
        self.wire.abort(reason)

    def end_if_idle(self) -> None:
        """Nothing runs and nothing new will: what still comes needs no answer, and could get none."""
        if not self.streams and not self.is_over:
            self.is_over = True
            self.alarms.disarm(alarms.KEEPALIVE)
            self.alarms.disarm(alarms.PONG)
            if self.is_client:
                self.wire.write(frame.goaway(0, NO_ERROR))
            self.wire.end()
            self.alarms.arm(alarms.CLOSING, limits.GOAWAY_S)

    def pump_blocked(self) -> None:
        blocked = self.blocked
        while blocked and self.send_window > 0 and self.is_writable:
            self.pump(blocked.popitem(False)[0])

    def pump(self, stream: H2Stream) -> None:
        if stream.pump():
            self.blocked.pop(stream, None)
            stream.tell_ready()
        elif stream.send_window > 0:
            self.blocked[stream] = None
        else:
            self.blocked.pop(stream, None)
