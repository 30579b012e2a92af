"""H1Server: an accepted HTTP/1 connection; it is the ServerStream of the one exchange it carries.

Law: state is committed before anything is called, because a reply may come
back inside the call. Bytes behind an open exchange are held, never parsed:
they may be the next request or, after an upgrade, another protocol.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason
from proxy.http.exchange import Clock, Exchange, Stage
from proxy.http.h1 import head as h1
from proxy.http.h1.body import LAST_CHUNK, BodyReader, chunk, last_chunk
from proxy.http.head import UNKNOWN, ResponseHead
from proxy.http.headers import Field
from proxy.http.stream import READ_AHEAD

_HEAD: Final = 0
_BODY: Final = 1
_WAIT: Final = 2
"""The request is read; its response is not written."""
_TUNNEL: Final = 3
_CLOSED: Final = 4
_STATES: Final = ("head", "body", "wait", "tunnel", "closed")


class H1Server:
    __slots__ = (
        "_wire", "_stage", "_clock", "_state", "_held", "_exchange", "_body", "_method",
        "_is_http_1_1", "_closes", "_is_chunked", "_is_upgrade", "_pauses", "_is_advancing", "_drained",
    )  # fmt: skip

    def __init__(self, wire: Wire, stage: Stage, clock: Clock) -> None:
        self._wire = wire
        self._stage = stage
        self._clock = clock
        self._state = _HEAD
        self._held = b""
        self._exchange: Exchange | None = None
        self._body = BodyReader(self)
        self._method = b""
        self._is_http_1_1 = True
        self._closes = False
        self._is_chunked = False
        self._is_upgrade = False
        self._pauses = 0
        self._is_advancing = False
        self._drained = 0

    # ---- Codec

    def feed(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
            self._held = b""
        self._advance(data)

    def eof(self) -> None:
        state = self._state
        if state == _TUNNEL and self._exchange is not None:
            self._exchange.request_data(b"", True)
        elif state == _WAIT:
            self._closes = True
        elif state == _HEAD and not self._held:
            self._state = _CLOSED
            self._wire.end()
        elif state != _CLOSED:
            self._give_up(Reason.PEER_CLOSED)

    def writable(self, is_writable: bool) -> None:
        exchange = self._exchange
        if exchange is not None:
            if is_writable:
                exchange.server_ready()
            else:
                exchange.server_blocked()

    def lost(self, reason: Reason) -> None:
        self._state = _CLOSED
        exchange = self._exchange
        self._exchange = None
        if exchange is not None:
            exchange.request_reset(reason)

    def close(self) -> None:
        if self._exchange is not None:
            self._closes = True
        elif self._state != _CLOSED:
            self._state = _CLOSED
            self._wire.end()

    # ---- ServerStream

    def send_informational(self, head: ResponseHead) -> None:
        if self._is_http_1_1:
            self._wire.write(h1.write_response(head, b"\r\n"))

    def send_head(self, head: ResponseHead, end: bool) -> None:
        self._is_chunked = False
        if head.status == 101:
            self._begin_tunnel(head)
            return
        if self._is_upgrade:
            self._refused_upgrade()
        framing = b"\r\n"
        if head.body_size == UNKNOWN and self._method != b"HEAD":
            if end and (head.status == 204 or head.status == 304):
                pass
            elif end:
                framing = b"Content-Length: 0\r\n\r\n"
            elif self._is_http_1_1:
                self._is_chunked = True
                framing = b"Transfer-Encoding: chunked\r\n\r\n"
            else:
                self._closes = True
        if self._closes:
            framing = b"Connection: close\r\n" + framing
        self._wire.write(h1.write_response(head, framing))
        if end:
            self._response_ended()

    def send_data(self, data: bytes, end: bool) -> None:
        if self._is_chunked:
            if data:
                self._wire.write(chunk(data) + LAST_CHUNK if end else chunk(data))
            elif end:
                self._wire.write(LAST_CHUNK)
        elif data:
            self._wire.write(data)
        if end:
            self._response_ended()

    def send_trailers(self, fields: list[Field]) -> None:
        # Without chunked coding there is no place for trailers; RFC 9110 section 6.5.2 lets us drop them.
        if self._is_chunked:
            self._wire.write(last_chunk(fields))
        self._response_ended()

    def close_connection(self) -> None:
        self._closes = True

    def reset(self, reason: Reason) -> None:
        self._exchange = None
        self._state = _CLOSED
        self._wire.abort(reason)

    def pause_reading(self, cause: int) -> None:
        if not self._pauses:
            self._wire.pause_reading()
        self._pauses |= cause

    def resume_reading(self, cause: int) -> None:
        if self._pauses & cause:
            self._pauses &= ~cause
            if not self._pauses:
                self._wire.resume_reading()

    # ---- BodySink

    def body_data(self, data: bytes, end: bool) -> None:
        exchange = self._exchange
        if exchange is None:
            self._drain(len(data), end)
            return
        if end:
            self._state = _WAIT
        exchange.request_data(data, end)

    def body_trailers(self, fields: list[Field]) -> None:
        exchange = self._exchange
        if exchange is None:
            self._drain(0, True)
            return
        self._state = _WAIT
        exchange.request_trailers(fields)

    # ---- reading

    def _advance(self, data: bytes) -> None:
        self._is_advancing = True
        try:
            while data:
                state = self._state
                if state == _HEAD:
                    data = self._read_head(data)
                elif state == _BODY:
                    data = self._body.feed(data)
                elif state == _WAIT:
                    self._hold(data)
                    break
                elif state == _TUNNEL and self._exchange is not None:
                    self._exchange.request_data(data, False)
                    break
                else:
                    break
        except ProtocolError as error:
            self._refuse(error)
        finally:
            self._is_advancing = False

    def _read_head(self, data: bytes) -> bytes:
        end = data.find(b"\r\n\r\n")
        if end <= 0:
            return self._partial_head(data, end)
        if end > limits.HEAD_BYTES:
            raise ProtocolError("head too long", Reason.OVER_LIMIT, 431)
        start_line, _, text = data[:end].partition(b"\r\n")
        block = h1.header_block(text)
        head = h1.read_request(start_line, block)
        rest = data[end + 4 :]
        self._method = head.method
        self._is_http_1_1 = start_line[-1] == 0x31
        self._closes = block.closes or not self._is_http_1_1
        size = head.body_size
        self._is_upgrade = False
        if size:
            head.upgrade = b""
            self._state = _BODY
            self._body.begin(size, size == UNKNOWN)
            ends = False
        else:
            self._state = _WAIT
            self._is_upgrade = bool(head.upgrade)
            ends = not self._is_upgrade
        exchange = self._exchange = Exchange(self, head, self._clock())
        exchange.request_head(self._stage, ends)
        return rest

    def _partial_head(self, data: bytes, end: int) -> bytes:
        if data.startswith(b"\r\n"):  # RFC 9112 section 2.2: one empty line before a request is ignored
            return data[2:]
        if len(data) > limits.HEAD_BYTES:
            raise ProtocolError("head too long", Reason.OVER_LIMIT, 431)
        self._held = data
        return b""

    def _hold(self, data: bytes) -> None:
        self._held = data
        if len(data) >= limits.HELD_BYTES:
            self.pause_reading(READ_AHEAD)

    def _drain(self, count: int, end: bool) -> None:
        """The rest of a request whose response was sent early."""
        self._drained += count
        if end:
            self._state = _HEAD
            self._drained = 0
        elif self._drained > limits.DRAIN_BYTES:
            self.reset(Reason.EARLY_RESPONSE)

    def _refuse(self, error: ProtocolError) -> None:
        exchange = self._exchange
        if exchange is None and self._state == _HEAD:
            self._state = _CLOSED
            head = ResponseHead(error.status, [], UNKNOWN)
            self._wire.write(h1.write_response(head, b"Content-Length: 0\r\nConnection: close\r\n\r\n"))
            self._wire.end()
            return
        self._give_up(error.reason)

    def _give_up(self, reason: Reason) -> None:
        exchange = self._exchange
        self.reset(reason)
        if exchange is not None:
            exchange.request_reset(reason)

    # ---- the end of a response

    def _response_ended(self) -> None:
        if self._state == _TUNNEL:
            self._wire.end()
            return
        self._exchange = None
        if self._pauses:
            self._pauses = 0
            self._wire.resume_reading()
        if self._closes:
            self._state = _CLOSED
            self._wire.end()
        elif self._state == _WAIT:
            self._state = _HEAD
            if self._held and not self._is_advancing:
                held = self._held
                self._held = b""
                self._advance(held)

    def _begin_tunnel(self, head: ResponseHead) -> None:
        self._state = _TUNNEL
        self._wire.write(h1.write_response(head, b"Connection: upgrade\r\nUpgrade: %b\r\n\r\n" % head.upgrade))
        held = self._held
        self._held = b""
        exchange = self._exchange
        if held and exchange is not None:
            exchange.request_data(held, False)

    def _refused_upgrade(self) -> None:
        self._is_upgrade = False
        exchange = self._exchange
        if exchange is not None:
            exchange.request_ended = True

    def __repr__(self) -> str:
        return f"H1Server {_STATES[self._state]} {self._exchange!r}"
