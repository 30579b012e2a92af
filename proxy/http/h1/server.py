"""H1Server: an accepted HTTP/1 connection; it is the ServerStream of the one exchange it carries.

State is committed before anything is called, because a reply may come back
inside the call. Bytes behind an open exchange are held, never parsed: they may
be the next request or, after an upgrade, another protocol. Doubtful framing
ends the connection; an unreasonable request gets its 400, the next is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core import limits
from proxy.core.codec import Codec, Wire
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.faults import Faults
from proxy.core.failure.reason import Reason
from proxy.core.loop.effort import spent
from proxy.core.loop.reactor import Clock
from proxy.core.loop.stall import Stall
from proxy.core.loop.timers import Timer, Wheel
from proxy.http.ending.left import wait_for_answer
from proxy.http.ending.linger import Linger
from proxy.http.ending.refusal import note_refusal
from proxy.http.exchange import Exchange, Stage
from proxy.http.fields.dates import date_line
from proxy.http.h1 import head as h1
from proxy.http.h1.body import BodyReader, last_chunk, write_chunk
from proxy.http.h1.expect import asks_to_continue
from proxy.http.h1.pauses import Pauses
from proxy.http.h1.refusal import BAD_TARGET, count_incomplete, refused
from proxy.http.h1.repair import is_still_begun, repaired
from proxy.http.head import HTTP_1_0, HTTP_1_1, TUNNEL, UNKNOWN, ResponseHead
from proxy.http.headers import Field
from proxy.http.stream import ANY, NEXT_TURN, READ_AHEAD, ServerStream

_HEAD: Final = 0
_BODY: Final = 1
_WAIT: Final = 2
"""The request is read; its response is not written."""
_TUNNEL: Final = 3
_CLOSED: Final = 4
_STATES: Final = ("head", "body", "wait", "tunnel", "closed")


class H1Server(Codec, ServerStream):
    __slots__ = (
        "_wire", "_stage", "_clock", "_wheel", "_state", "_held", "_exchange", "_body", "_version",
        "_closes", "_is_chunked", "_ends_by_close", "_is_sending", "_has_eof", "_is_writable", "_pauses", "_is_advancing",
        "_drained", "_faults", "_slow_head", "_left", "_is_leaving", "head_timeout_s", "bad_target", "on_bad_head",
    )  # fmt: skip

    def __init__(
        self, wire: Wire, stage: Stage, clock: Clock, wheel: Wheel | None = None, faults: Faults | None = None
    ) -> None:
        """With a wheel, a client that will not hang up after our last answer is closed after `limits.LINGER_S`, and one
        that does not end a head that it has begun after `head_timeout_s`. `faults` counts the requests that are refused."""
        self._wire, self._stage, self._clock, self._wheel, self._faults = wire, stage, clock, wheel, faults
        self._state, self._held, self._version = _HEAD, b"", HTTP_1_1
        self._exchange: Exchange | None = None
        self._body = BodyReader(self)
        self._closes = self._is_leaving = self._is_chunked = self._has_eof = self._is_advancing = False
        self._ends_by_close = False  # the response that is being written has no other end
        self._is_sending = False  # the client sends its body, or got a 100
        self._is_writable, self._pauses, self._drained = True, Pauses(wire), 0
        self._slow_head: Timer | None = None
        """Armed while a head has begun and not ended; a client that is idle is ended only when descriptors are short."""
        self._left: Stall | None = None  # armed while an answer is awaited whose client has ended its side
        self.head_timeout_s, self.bad_target = limits.HEAD_S, BAD_TARGET  # replaced by a side that has others
        self.on_bad_head: Callable[[], None] | None = None  # a head that no stage gets to see ends the connection

    # ---- Codec

    def feed(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
            if self._pauses.causes & NEXT_TURN or (self._state == _HEAD and is_still_begun(data, len(self._held))):
                self._held = data
                return
            self._held = b""
        self._is_advancing = True
        heads_left, enough_s = limits.TURN_HEADS, spent.s + limits.TURN_MATCH_S
        try:
            while data:
                state = self._state
                if state == _HEAD:
                    if not self._is_writable:  # it sends requests and does not read answers
                        data = self._hold(data)
                    elif heads_left <= 0 or spent.s > enough_s:
                        data = self._wait_turn(data)
                    else:
                        before = data
                        data = self._read_head(data)
                        if not data:
                            break
                        heads_left -= h1.share_of(before, data)
                elif state == _BODY:
                    data = self._body.feed(data)
                    if self._body.has_rest:
                        data = self._wait_turn(data)
                elif state == _WAIT:
                    data = self._hold(data)
                elif state == _TUNNEL and self._exchange is not None:
                    self._exchange.request_data(data, False)
                    break
                else:
                    break
        except ProtocolError as error:
            self._refuse(error)
        finally:
            self._is_advancing = False
        if self._has_eof:
            if self._state != _WAIT:
                self.eof()
            elif self._exchange is not None:
                self._left = wait_for_answer(self._exchange, self._wheel, self._left)  # a whole request gets it first

    def eof(self) -> None:
        self._has_eof = True
        if self._pauses.causes & NEXT_TURN:
            return  # what came before it still waits
        state, exchange = self._state, self._exchange
        if state == _TUNNEL and exchange is not None:
            exchange.request_data(b"", True)
        elif state == _BODY and exchange is not None:
            self.reset(Reason.PEER_CLOSED)
            exchange.request_reset(Reason.PEER_CLOSED)
        elif state == _WAIT and exchange is not None:
            self._left = wait_for_answer(exchange, self._wheel, self._left)
            if not self._held:
                exchange.request_left()
        elif state == _BODY or (state == _HEAD and (self._is_writable or not self._held)):
            self._finish()  # what is held is no whole request

    def writable(self, is_writable: bool) -> None:
        self._is_writable = is_writable
        exchange = self._exchange
        if exchange is not None:
            if is_writable:
                exchange.server_ready()
            else:
                exchange.server_blocked()
        elif is_writable and self._state == _HEAD:
            self._go_on()

    def lost(self, reason: Reason) -> None:
        self._become_closed()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.request_reset(reason)

    def ask_to_leave(self) -> None:
        self._is_leaving = self._closes = True

    def close(self) -> None:
        self.ask_to_leave()
        has_more = self._pauses.causes & NEXT_TURN
        if self._exchange is None and self._is_writable and not has_more and self._state != _CLOSED:
            self._become_closed()
            self._wire.abort(Reason.COMPLETE)

    # ---- ServerStream

    def send_informational(self, head: ResponseHead) -> None:
        if self._version != HTTP_1_0:
            self._is_sending = True
            self._wire.write(h1.write_response(head, b"\r\n", False))

    def send_head(self, head: ResponseHead, end: bool) -> None:
        self._is_chunked = self._ends_by_close = False
        written = head.renderings.http1 if head.renderings is not None else b""
        if written and head.body_size >= 0 and self._state == _WAIT and not self._closes and not self._held:
            self._wire.write(written)  # this connection has nothing of its own to say about it
        elif head.body_size == TUNNEL:
            self._begin_tunnel(head)
            return
        else:
            self._wire.write(self._written(head, end))
        if end:
            self._response_ended()

    def _written(self, head: ResponseHead, end: bool) -> bytes:
        """The head with what this connection has to say about it."""
        exchange = self._exchange
        is_http_1_0 = self._version == HTTP_1_0
        framing = b"\r\n"
        if head.body_size == UNKNOWN and (exchange is None or exchange.request.method != b"HEAD"):
            if end:
                if head.status != 204 and head.status != 304:
                    framing = b"Content-Length: 0\r\n\r\n"
            elif is_http_1_0 or head.version == HTTP_1_0:
                # What an HTTP/1.0 app ended by closing ends so for its client.
                is_http_1_0 = self._closes = self._ends_by_close = True
            else:
                self._is_chunked = True
                framing = b"Transfer-Encoding: chunked\r\n\r\n"
        if self._state == _BODY and not self._is_sending and exchange is not None:
            self._closes = self._closes or asks_to_continue(exchange)
        elif self._held and exchange is not None and exchange.request.method == b"CONNECT":
            self._closes = True  # what came behind it was meant for the tunnel: refused, it is no request
        if self._closes and not is_http_1_0:
            framing = b"Connection: close\r\n" + framing
        if not head.has_date:
            framing = date_line(head, self._clock()) + framing
        return h1.write_response(head, framing, is_http_1_0 or head.version == HTTP_1_0)

    def send_data(self, data: bytes, end: bool) -> None:
        if self._is_chunked:
            write_chunk(self._wire, data, end)
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
        self._become_closed()
        # A body without length or chunks is complete at FIN: only a reset says that it is not (RFC 9112 section 8).
        self._wire.abort(Reason.CONNECTION_RESET if self._ends_by_close else reason)

    def pause_reading(self, cause: int) -> None:
        self._pauses.add(cause)

    def resume_reading(self, cause: int) -> None:
        self._pauses.remove(cause)

    def body_data(self, data: bytes, end: bool) -> None:
        exchange = self._exchange
        if exchange is None:
            self._drain(len(data), end)
            return
        self._is_sending = True
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

    def _read_head(self, data: bytes) -> bytes:
        text, end, rest = data.partition(b"\r\n\r\n")
        if not end or not text or len(text) > limits.HEAD_BYTES:
            return self._partial_head(data)
        known = h1.known_request(text)
        if known is None:
            try:
                known = h1.read_request(text)
            except ProtocolError:
                better = repaired(data)
                if better is None:
                    raise
                return better
        head, closes, is_good = known
        if self._slow_head is not None:
            self._slow_head.cancel()
        self._version = head.version
        self._closes = closes or self._is_leaving
        size = head.body_size
        if size:
            self._state = _BODY
            self._is_sending = False
            self._drained = 0
            self._body.begin(size, size == UNKNOWN)
        else:
            self._state = _WAIT
        stage = self._stage if is_good else self.bad_target
        if rest and head.method == b"CONNECT" and stage is not BAD_TARGET:
            self._held, rest = rest, b""  # these belong to the tunnel, or are dropped: they are never the next request
        clock = self._clock  # a local: CPython 3.11 is slow to call what a slot holds by its attribute
        exchange = self._exchange = Exchange(self, head, clock(), clock)
        exchange.request_head(stage, not size)
        return rest

    def _partial_head(self, data: bytes) -> bytes:
        better = repaired(data)
        if better is not None:
            return better
        h1.check_begun(data)
        self._held = data
        if self._wheel is not None and (self._slow_head is None or not self._slow_head.is_armed):
            self._slow_head = self._wheel.after(self.head_timeout_s, self._head_too_slow)
        return b""

    def _head_too_slow(self) -> None:
        self._held = b""
        self._refuse(ProtocolError("the head of the request did not end in time", Reason.SLOW_OPENING, 408))

    def is_idle(self) -> bool:
        return self._exchange is None

    def _hold(self, data: bytes) -> bytes:
        self._held = data
        if len(data) >= limits.HELD_BYTES:
            self.pause_reading(READ_AHEAD)
        return b""

    def _wait_turn(self, data: bytes) -> bytes:
        """This connection has had its share of the turn; the others come first."""
        self._held = data
        self.pause_reading(NEXT_TURN)
        self._wire.schedule(self)
        return b""

    def step(self) -> None:
        """The step queue calls this."""
        self.resume_reading(NEXT_TURN)
        if self._state <= _BODY:
            self._go_on()

    def _go_on(self) -> None:
        """Read what was held back."""
        self.resume_reading(READ_AHEAD)
        held, self._held = self._held, b""
        if held or self._has_eof:
            self.feed(held)

    def _drain(self, count: int, end: bool) -> None:
        """Discard the rest of a request whose response was sent early."""
        self._drained += count
        if self._state == _BODY and end:
            self._state = _HEAD
        elif self._state == _BODY and self._drained > limits.DRAIN_BYTES:
            self._finish()

    def _refuse(self, error: ProtocolError) -> None:
        exchange = self._exchange
        if exchange is not None:
            if exchange.response is None:
                note_refusal(error, self._faults)  # later the connection is reset, and its meter counts that
            self._closes = True
            exchange.request_refused(error.status, str(error))
        else:
            head = refused(error, self._faults, self.on_bad_head if self._state == _HEAD else None)
            if self._state == _HEAD:
                framing = date_line(head, self._clock()) + b"Connection: close\r\n\r\n"
                self._wire.write(h1.write_response(head, framing, False))
            self._finish()

    def _response_ended(self) -> None:
        if self._state == _TUNNEL:
            self._wire.end()
            return
        self._exchange = None
        if self._pauses.causes:
            self._pauses.remove(ANY)
        if self._closes:
            self._finish()
        elif self._state == _WAIT:
            self._state = _HEAD
            if not self._is_advancing and (self._held or self._has_eof):
                self._go_on()

    def _begin_tunnel(self, head: ResponseHead) -> None:
        self._state = _TUNNEL
        self._wire.write(h1.write_response(head, date_line(head, self._clock()) + b"\r\n", False))
        self.resume_reading(READ_AHEAD)
        held, self._held = self._held, b""
        ends = self._has_eof and not self._is_advancing
        if self._exchange is not None and (held or ends):
            self._exchange.request_data(held, ends)

    def _finish(self) -> None:
        """The last response is written: the wire belongs to Linger until the client hangs up."""
        if self._held and self._state == _HEAD:
            count_incomplete(self._faults, self.on_bad_head)
        self._become_closed()
        if self._has_eof:
            self._wire.end()
        else:
            Linger(self._wire, self._wheel, self._is_writable)

    def _become_closed(self) -> None:
        self._state = _CLOSED
        self._held = b""
        self._body.close()
        for one in (self._slow_head, self._left):
            if one is not None:
                one.cancel()

    def __repr__(self) -> str:
        return f"H1Server {_STATES[self._state]} {self._exchange!r}"
