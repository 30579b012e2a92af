"""H2Connection: frames in, streams found, and everything that belongs to stream 0.

Law: a fault of one stream resets that stream; only a fault of the
connection ends the connection. A header block is always decoded, even for a
stream that is gone, or the table would fall out of step.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.errors import ProtocolError, report_fault
from proxy.core.reason import Reason
from proxy.http.h2 import frame
from proxy.http.h2.flow import Credit
from proxy.http.h2.frame import CODES, END_HEADERS, END_STREAM, PADDED, PRIORITY_FLAG, header_struct, u32_struct
from proxy.http.h2.hpack import Decoder, Encoder
from proxy.http.h2.stream import H2Stream

_unpack_header: Final = header_struct.unpack_from


class H2Connection:
    __slots__ = (
        "wire", "is_writable", "send_window", "peer_window", "streams", "blocked", "encoder", "decoder",
        "is_going_away", "last_id", "_buffer", "_preface", "_credit", "_block", "_block_id", "_block_ends",
    )  # fmt: skip

    def __init__(self, wire: Wire, preface: bytes) -> None:
        self.wire = wire
        self.is_writable = True
        self.send_window = frame.DEFAULT_WINDOW
        self.peer_window = frame.DEFAULT_WINDOW
        """SETTINGS_INITIAL_WINDOW_SIZE of the peer."""
        self.streams: dict[int, H2Stream] = {}
        self.blocked: dict[H2Stream, None] = {}
        """Streams with unsent data, longest waiting first."""
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.is_going_away = False
        self.last_id = 0
        """The highest stream that the client side opened."""
        self._buffer = b""
        self._preface = preface
        """What must come before the first frame."""
        self._credit = Credit(limits.CONNECTION_WINDOW_BYTES)
        self._block = b""
        self._block_id = 0
        """A stream whose header block goes on in CONTINUATION, or 0."""
        self._block_ends = False
        wire.write(frame.OPENING)

    # ---- Codec

    def feed(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        try:
            self._buffer = self._read_frames(data)
        except ProtocolError as error:
            self._buffer = b""
            self._fail(error.reason)

    def eof(self) -> None:
        self._end_streams(Reason.PEER_CLOSED)
        self.wire.abort(Reason.PEER_CLOSED)

    def writable(self, is_writable: bool) -> None:
        self.is_writable = is_writable
        if is_writable:
            self._pump_blocked()

    def lost(self, reason: Reason) -> None:
        self.is_going_away = True
        self._end_streams(reason)

    # ---- for streams

    def take(self, size: int) -> None:
        """Credit for DATA that was taken or thrown away."""
        increment = self._credit.take(size)
        if increment:
            self.wire.write(frame.window_update(0, increment))

    def forget(self, stream: H2Stream) -> None:
        """The stream is closed."""
        self.streams.pop(stream.id, None)
        if stream.has_remains():
            self.blocked.pop(stream, None)
            self.take(stream.discard())
        if self.is_going_away and not self.streams:
            self.wire.end()

    def close(self) -> None:
        """Finish what runs, take nothing new."""
        if not self.is_going_away:
            self.is_going_away = True
            self.wire.write(frame.goaway(self.last_id, 0))
            if not self.streams:
                self.wire.end()

    # ---- what the roles add

    def receive_block(self, block: bytes, end: bool, stream_id: int) -> None:
        raise NotImplementedError

    def receive_goaway(self, last_id: int) -> None:
        raise NotImplementedError

    def receive_max_streams(self, count: int) -> None:
        """Only clients care."""

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
        while size - position >= 9:
            length_and_kind, flags, stream_id = _unpack_header(data, position)
            length = length_and_kind >> 8
            start = position + 9
            end = start + length
            if end > size:
                if length > limits.FRAME_BYTES:
                    raise ProtocolError("frame too large")
                break
            kind = length_and_kind & 255
            if self._block_id and (kind != frame.CONTINUATION or stream_id != self._block_id):
                raise ProtocolError("header block interrupted")
            if kind == frame.DATA:
                self._receive_data(data, start, end, flags, stream_id)
            elif kind == frame.HEADERS:
                self._receive_headers(data[start:end], flags, stream_id)
            elif kind == frame.WINDOW_UPDATE:
                self._receive_window_update(data, start, length, stream_id)
            else:
                self._receive_rare(kind, flags, stream_id, data[start:end])
            position = end
        return data[position:] if position < size else b""

    def _receive_data(self, data: bytes, start: int, end: int, flags: int, stream_id: int) -> None:
        size = end - start
        self._credit.receive(size)
        payload = data[start:end]
        if flags & PADDED:
            payload = _unpadded(payload, PADDED)
        stream = self.streams.get(stream_id)
        if stream is None or stream.state >= 2:
            self._check_known(stream_id)
            self.take(size)
            return
        try:
            stream.receive_data(payload, size, flags & END_STREAM != 0)
        except ProtocolError as error:
            self._reset_stream(stream, error.reason)
        except Exception:
            report_fault()
            self._reset_stream(stream, Reason.INTERNAL)

    def _receive_headers(self, payload: bytes, flags: int, stream_id: int) -> None:
        if not stream_id:
            raise ProtocolError("HEADERS on stream 0")
        if flags & (PADDED | PRIORITY_FLAG):
            payload = _unpadded(payload, flags)
        ends = flags & END_STREAM != 0
        if flags & END_HEADERS:
            self.receive_block(payload, ends, stream_id)
        else:
            self._block = payload
            self._block_id = stream_id
            self._block_ends = ends

    def _receive_window_update(self, data: bytes, start: int, length: int, stream_id: int) -> None:
        if length != 4:
            raise ProtocolError("bad WINDOW_UPDATE")
        increment: int = u32_struct.unpack_from(data, start)[0] & frame.WINDOW_LIMIT
        if stream_id == 0:
            self.send_window += increment
            if not increment or self.send_window > frame.WINDOW_LIMIT:
                raise ProtocolError("bad window increment", Reason.FLOW_CONTROL)
            self._pump_blocked()
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id)
            return
        stream.send_window += increment
        if not increment or stream.send_window > frame.WINDOW_LIMIT:
            self._reset_stream(stream, Reason.FLOW_CONTROL)
        elif stream in self.blocked:
            self._pump(stream)

    def _receive_rare(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == frame.CONTINUATION:
            self._receive_continuation(payload, flags, stream_id)
        elif kind == frame.SETTINGS:
            self._receive_settings(payload, flags, stream_id)
        elif kind == frame.RST_STREAM:
            self._receive_rst_stream(payload, stream_id)
        elif kind == frame.PING:
            if len(payload) != 8 or stream_id:
                raise ProtocolError("bad PING")
            if not flags & frame.ACK:
                self.wire.write(frame.header(8, frame.PING, frame.ACK, 0) + payload)
        elif kind == frame.GOAWAY:
            if len(payload) < 8 or stream_id:
                raise ProtocolError("bad GOAWAY")
            self.is_going_away = True
            self.receive_goaway(u32_struct.unpack_from(payload, 0)[0] & frame.WINDOW_LIMIT)
        elif kind == frame.PUSH_PROMISE:
            raise ProtocolError("push is off")

    def _receive_continuation(self, payload: bytes, flags: int, stream_id: int) -> None:
        if not self._block_id:
            raise ProtocolError("CONTINUATION without HEADERS")
        self._block += payload
        if len(self._block) > limits.HEAD_BYTES:
            raise ProtocolError("header block too long", Reason.OVER_LIMIT)
        if flags & END_HEADERS:
            block = self._block
            self._block = b""
            self._block_id = 0
            self.receive_block(block, self._block_ends, stream_id)

    def _receive_settings(self, payload: bytes, flags: int, stream_id: int) -> None:
        if stream_id or len(payload) % 6 or (flags & frame.ACK and payload):
            raise ProtocolError("bad SETTINGS")
        if flags & frame.ACK:
            return
        for name, value in frame.setting_struct.iter_unpack(payload):
            if name == frame.SETTINGS_INITIAL_WINDOW_SIZE:
                if value > frame.WINDOW_LIMIT:
                    raise ProtocolError("bad initial window", Reason.FLOW_CONTROL)
                change = value - self.peer_window
                self.peer_window = value
                for stream in self.streams.values():
                    stream.send_window += change
                self._pump_blocked()
            elif name == frame.SETTINGS_HEADER_TABLE_SIZE:
                self.encoder.limit_table(value)
            elif name == frame.SETTINGS_MAX_CONCURRENT_STREAMS:
                self.receive_max_streams(value)
        self.wire.write(frame.SETTINGS_ACK)

    def _receive_rst_stream(self, payload: bytes, stream_id: int) -> None:
        if len(payload) != 4 or not stream_id:
            raise ProtocolError("bad RST_STREAM")
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id)
            return
        stream.state = 3
        self.forget(stream)
        stream.deliver_reset(frame.reason_of(u32_struct.unpack(payload)[0]))

    # ---- faults and pumping

    def _check_known(self, stream_id: int) -> None:
        if not stream_id or stream_id > self.last_id:
            raise ProtocolError("frame on a stream that was never opened")

    def _reset_stream(self, stream: H2Stream, reason: Reason) -> None:
        exchange = stream.exchange
        stream.reset(reason)
        if exchange is not None:
            stream.exchange = exchange
            stream.deliver_reset(reason)

    def _fail(self, reason: Reason) -> None:
        self.wire.write(frame.goaway(self.last_id, CODES[reason]))
        self._end_streams(reason)
        self.wire.abort(reason)

    def _end_streams(self, reason: Reason) -> None:
        streams = list(self.streams.values())
        self.streams.clear()
        self.blocked.clear()
        for stream in streams:
            stream.state = 3
            stream.deliver_reset(reason)

    def _pump_blocked(self) -> None:
        for stream in list(self.blocked):
            if self.send_window <= 0 or not self.is_writable:
                return
            self._pump(stream)

    def _pump(self, stream: H2Stream) -> None:
        if stream.pump():
            self.blocked.pop(stream, None)
            stream.tell_ready()


def _unpadded(payload: bytes, flags: int) -> bytes:
    padding = 0
    start = 0
    if flags & PADDED:
        padding = payload[0] if payload else 255
        start = 1
    if flags & PRIORITY_FLAG:
        start += 5
    if start + padding > len(payload):
        raise ProtocolError("bad padding")
    return payload[start : len(payload) - padding]
