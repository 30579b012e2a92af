"""H2Connection: frames in, streams found, and everything that belongs to stream 0.

A fault of one stream resets that stream; only a fault of the connection ends
the connection. A header block is always decoded, even for a stream that is
gone, or the table would fall out of step. Work per frame is O(1), but for
SETTINGS, which pays for the streams it touches. What one read brought beyond
the connection's share of a turn waits in `_buffer`, with reading paused.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.errors import ProtocolError, report_fault
from proxy.core.reactor import Clock
from proxy.core.reason import Reason
from proxy.core.timers import Wheel
from proxy.http.h2 import alarms, control, frame
from proxy.http.h2.alarms import Alarms
from proxy.http.h2.backlog import Backlog
from proxy.http.h2.codes import NO_ERROR, code_of
from proxy.http.h2.flow import Credit, overrun
from proxy.http.h2.frame import ACK, END_HEADERS, END_STREAM, PADDED, PRIORITY_FLAG, header_struct
from proxy.http.h2.hpack import Decoder
from proxy.http.h2.hpack_encoder import Encoder
from proxy.http.h2.settings import H2Settings, PeerSettings
from proxy.http.h2.stream import REMOTE_ENDED, H2Stream
from proxy.http.h2.toll import Toll
from proxy.http.linger import Linger
from proxy.http.refusal import note_flood

_unpack_header: Final = header_struct.unpack_from

SELF_DEPENDENT: Final = 256
"""Beside the flags of a HEADERS frame: its stream depends on itself (RFC 9113 section 5.3.2 keeps the rule's form)."""

_HEAD_SHARE: Final = limits.TURN_FRAMES // limits.TURN_HEADS - 1
"""What a head takes of a turn's share beside one frame's."""
_BLOCK_SHIFT: Final = 6
"""And it takes one frame's more for every 64 octets of its block, which may be as many fields: 16 KiB of header blocks
use a turn up. A block over several frames ends its turn anyway."""
_FRAMING_FLAGS: Final = END_HEADERS | PADDED | PRIORITY_FLAG
_NO_SETTINGS: Final = -1
"""`block_id` until the peer's SETTINGS, which must come first (RFC 9113 section 3.4)."""


class H2Connection:
    __slots__ = (
        "wire", "settings", "peer", "is_client", "is_writable", "is_over", "is_going_away", "last_id", "send_window",
        "peer_window", "stream_window", "streams", "backlog", "ending", "encoder", "decoder", "control", "resets", "is_full",
        "alarms", "has_heard", "sent_messages", "ended_streams", "allowed_bytes", "_is_waiting", "_is_stopped",
        "_buffer", "_preface", "_max_frame_bytes", "_credit", "block", "block_id", "_clock",
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
        self.backlog = Backlog()
        self.ending: list[tuple[H2Stream, Reason, int]] = []
        """Streams that are over and whose exchanges have yet to hear why, and with which code."""
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.control: Toll | None = None
        self.resets: Toll | None = None
        """What the peer owes for frames that carry nothing, and for streams that end early by its doing; made when it does."""
        self.is_full = False
        self.alarms = Alarms(self, wheel)
        self.has_heard = False
        """Bytes came since keepalive last looked."""
        self.sent_messages = 0
        """Pieces of bodies that left as the other side said them."""
        self.ended_streams = 0
        self._is_waiting = False
        self._is_stopped = False
        """Reading is paused: until our next turn, or until the peer reads what we sent."""
        self._buffer = b""
        self._max_frame_bytes = settings.max_frame_bytes
        self._preface = b"" if is_client else frame.PREFACE
        window_bytes = max(settings.connection_window_bytes, frame.DEFAULT_WINDOW)
        self._credit = Credit(window_bytes, window_bytes)
        self.allowed_bytes = frame.DEFAULT_WINDOW + window_bytes
        """What each has let the other send so far, less what of it was of no use."""
        self.block: control.OpenBlock | None = None
        self.block_id = _NO_SETTINGS
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
            if self._is_waiting or self._is_stopped:
                self._buffer = data
                return
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
            self.backlog.pump_waiting(self)
            if self._is_stopped:
                self._is_stopped = False
                self.wait_turn()

    def lost(self, reason: Reason) -> None:
        self.is_over = True
        self.is_going_away = True
        self.alarms.clear()
        self.encoder.close()
        self.decoder.close()
        self.retire()
        control.end_streams(self, reason)

    # ---- for streams

    def take(self, size: int) -> None:
        """Credit for DATA that was taken or thrown away."""
        credit = self._credit
        credit.taken += size
        if credit.taken >= credit.batch:
            increment = credit.give_back()
            self.allowed_bytes += increment
            self.wire.write(frame.window_update(0, increment))

    def forget(self, stream: H2Stream) -> None:
        """The stream is closed."""
        self.streams.pop(stream.id, None)
        backlog = self.backlog
        if stream.queue is not None or stream.held or backlog.silenced:
            backlog.forget(stream)
            self.take(stream.discard())
        self.ended_streams += 1
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

    # ---- turns

    def wait_turn(self) -> None:
        """More is at hand than one turn's share: everyone else comes first."""
        if not self._is_waiting:
            self._is_waiting = True
            self.wire.pause_reading()
            self.wire.ask_turn(self)

    def step(self) -> None:
        """Of the line of turns."""
        self._is_waiting = False
        control.tell_ends(self)
        self.backlog.pump_waiting(self)
        if not self._is_waiting:
            self.feed(b"")
        if not self._is_waiting and not self._is_stopped:
            self.wire.resume_reading()

    def moved_bytes(self) -> int:
        """DATA both ways so far."""
        return self.allowed_bytes - self.send_window - self._credit.window

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
        share = limits.TURN_FRAMES
        while size - position >= 9 and not self.is_over:
            if share <= 0:
                self.wait_turn()
                break
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
            if self.block_id:
                self._check_order(kind, flags, stream_id)
            share -= 1
            if kind == frame.DATA:
                self._receive_data(data, start, end, flags, stream_id)
            elif kind == frame.HEADERS:
                if not self.is_writable and len(self.streams) >= limits.UNREAD_STREAMS and not self.is_client:
                    self._stop()
                    break
                share -= _HEAD_SHARE + (length >> _BLOCK_SHIFT)
                if flags & _FRAMING_FLAGS == END_HEADERS and stream_id:
                    self.receive_block(data[start:end], flags, stream_id)
                else:
                    self._receive_headers(data[start:end], flags, stream_id)
            else:
                share -= self._receive_rare(kind, flags, stream_id, data[start:end])
            position = end
        return data[position:] if position < size else b""

    def _check_order(self, kind: int, flags: int, stream_id: int) -> None:
        if self.block_id == _NO_SETTINGS:
            if kind != frame.SETTINGS or flags & ACK:
                raise ProtocolError("the first frame is not SETTINGS")
            self.block_id = control.NO_BLOCK
            self.alarms.disarm(alarms.OPENING)
        elif kind != frame.CONTINUATION or stream_id != self.block_id:
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
            self.allowed_bytes -= size  # thrown away: no progress
            control.charge_silent(self, 1)
            self.take(size)
            self.closed_stream(stream_id)
            return
        if stream.state >= REMOTE_ENDED:
            self.take(size)
            self.reset_stream(stream, Reason.STREAM_CLOSED)
            return
        if not payload and not flags & END_STREAM:
            control.charge_silent(self, 1)
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
            self.block = control.OpenBlock(payload, flags)
            self.block_id = stream_id
            self.alarms.arm(alarms.OPENING, limits.OPENING_S)

    def _receive_rare(self, kind: int, flags: int, stream_id: int, payload: bytes) -> int:
        """Neither DATA nor HEADERS. What it takes of the share beside one frame's."""
        sent_frames = self.backlog.frames
        if kind == frame.WINDOW_UPDATE:
            control.receive_window_update(self, payload, stream_id)
        elif kind == frame.RST_STREAM:
            control.receive_rst_stream(self, payload, stream_id)
            return _HEAD_SHARE
        elif kind == frame.CONTINUATION:
            control.receive_continuation(self, payload, flags, stream_id)
            return _HEAD_SHARE if self.block is not None else limits.TURN_FRAMES
        else:
            control.charge(self, 1)
            control.receive(self, kind, flags, stream_id, payload)
        return self.backlog.frames - sent_frames

    def _stop(self) -> None:
        self._is_stopped = True
        self.wire.pause_reading()

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
        control.charge_reset(self)

    def fail(self, reason: Reason) -> None:
        """The connection is at fault, or silent."""
        if self.is_over:
            return
        self.is_over = True
        self.is_going_away = True
        self._buffer = b""
        wheel = self.alarms.wheel
        self.alarms.clear()
        note_flood(reason)
        self.wire.write(frame.goaway(0 if self.is_client else self.last_id, code_of(reason)))
        self.retire()
        control.end_streams(self, reason)
        if wheel is None or reason is Reason.PEER_SILENT:
            self.wire.abort(reason)
        else:
            self.settings.count_fault(reason)
            Linger(self.wire, wheel, self.is_writable, reason)  # or the GOAWAY would be lost behind what still comes

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
