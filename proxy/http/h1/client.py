"""H1Client: a dialled HTTP/1 connection; it is the ClientStream of the one exchange it carries.

It goes back to its pool before it reports the end of a response, so that the
code that is called may use it again; and only if not one byte is left over,
because such bytes would answer the next request. A request is written when the
connection is made, not before: if it never is, nothing was sent.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.codec import Codec, Wire
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.attempt import Attempt
from proxy.http.fields.upgrades import is_asked_for
from proxy.http.h1 import head as h1
from proxy.http.h1.block import header_block
from proxy.http.h1.body import BodyReader, last_chunk, write_chunk
from proxy.http.h1.pauses import Pauses
from proxy.http.h1.repair import is_still_begun, repaired_response, with_crlf
from proxy.http.head import TUNNEL, UNKNOWN, RequestHead, ResponseHead
from proxy.http.headers import Field
from proxy.http.pool import Pool
from proxy.http.repeat.repeat import BEGUN, NOT_BEGUN, RACED
from proxy.http.stream import ANY, NEXT_TURN, ClientStream, keep

_CONNECTING: Final = 0
_IDLE: Final = 1
_HEAD: Final = 2
_BODY: Final = 3
_TUNNEL: Final = 4
_CLOSED: Final = 5
_STATES: Final = ("connecting", "idle", "head", "body", "tunnel", "closed")

_RACES: Final = (Reason.PEER_CLOSED, Reason.CONNECTION_RESET)
_BODILESS: Final = frozenset((b"HEAD", b"CONNECT"))
"""Methods whose responses do not end where their head seems to tell."""
_NO_HEAD: Final = RequestHead(b"", b"", b"", b"", [], 0)


class H1Client(Codec, ClientStream):
    __slots__ = (
        "_wire", "_pool", "_state", "_held", "_attempt", "_body", "_request", "_early", "keep_alive_s",
        "_is_chunked", "_request_ended", "_keeps_alive", "_was_used", "_is_unanswered", "_is_writable", "_pauses", "_has_eof",
    )  # fmt: skip

    def __init__(self, wire: Wire, pool: Pool, is_connecting: bool = False) -> None:
        """With `is_connecting`, `connected` is called when the wire can carry bytes, and no attempt is attached before."""
        self._wire = wire
        self._pool = pool
        self._state = _CONNECTING if is_connecting else _IDLE
        self._held = b""
        self._attempt: Attempt | None = None
        self._body = BodyReader(self, is_response=True)
        self._request: RequestHead = _NO_HEAD
        """The head that was sent last."""
        self._early: list[bytes] | None = None
        """Bytes for a tunnel that is not open yet: a server that refuses it would read them as its next request."""
        self._is_chunked = self._request_ended = False
        self._keeps_alive = self._is_writable = True
        self._was_used = False
        """Whether it has carried an exchange before, so that the peer may be closing it just now."""
        self.keep_alive_s = 0.0
        """How long the peer said that it leaves an idle connection open (`Keep-Alive: timeout=`); 0 if it said nothing."""
        self._is_unanswered = False
        """A request was sent, and not one byte has come back."""
        self._pauses = Pauses(wire)
        self._has_eof = False
        """The peer has ended; bytes that came before wait for the next turn."""

    # ---- ClientConnection

    def open(self, attempt: Attempt) -> None:
        """Attach the attempt: now, or when the connection is made."""
        self._attempt = attempt
        if self._state == _CONNECTING:
            attempt.exchange.park(self._abandoned)
        else:
            self._state = _HEAD
            attempt.exchange.attach(self, attempt.head)

    def connected(self) -> None:
        """Called by the dial when bytes can flow."""
        if self._state != _CONNECTING:
            return
        self._state = _IDLE
        if self._attempt is None:
            self._pool.release(self)
        else:
            self.open(self._attempt)

    def is_stale(self) -> bool:
        """The peer has closed it, or has sent something without a request. Asked of an idle connection before it gets a request
        that could not be sent twice."""
        return self._wire.is_stale()

    def close(self) -> None:
        self._keeps_alive = False
        if self._state == _IDLE:
            self._retire()
            self._wire.abort(Reason.COMPLETE)

    def _abandoned(self) -> None:
        """The client has gone before the connection was made."""
        self._attempt = None
        self._retire()
        self._wire.abort(Reason.CANCELLED)

    # ---- Codec

    def feed(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
            if self._pauses.causes & NEXT_TURN or (self._state == _HEAD and is_still_begun(data, len(self._held))):
                self._held = data
                return
            self._held = b""
        heads_left = limits.TURN_HEADS
        try:
            while data:
                state = self._state
                if state == _HEAD:
                    if heads_left <= 0:  # informational responses, since a final one ends this loop
                        self._wait_turn(data)
                        break
                    before = data
                    data = self._read_head(data)
                    if not data:
                        break
                    heads_left -= h1.share_of(before, data)
                elif state == _BODY:
                    data = self._body.feed(data)
                    if self._body.has_rest:
                        self._wait_turn(data)
                        break
                elif state == _TUNNEL and self._attempt is not None:
                    self._attempt.exchange.response_data(data, False)
                    break
                else:
                    self._fail(Reason.PROTOCOL_ERROR)
                    break
        except ProtocolError as error:
            is_head = self._state == _HEAD and error.reason is Reason.OVER_LIMIT
            self._fail(Reason.RESPONSE_HEAD_LIMIT if is_head else error.reason)

    def _wait_turn(self, data: bytes) -> None:
        """This connection has had its share of the turn; the others come first."""
        self._held = data
        self.pause_reading(NEXT_TURN)
        self._wire.schedule(self)

    def step(self) -> None:
        """The step queue calls this."""
        self.resume_reading(NEXT_TURN)
        held = self._held
        if held and (self._state == _HEAD or self._state == _BODY):
            self._held = b""
            self.feed(held)
        if self._has_eof:
            self.eof()

    def eof(self) -> None:
        if self._pauses.causes & NEXT_TURN:
            self._has_eof = True  # it came while earlier bytes still wait
            return
        self._has_eof = False
        state = self._state
        if state == _TUNNEL and self._attempt is not None:
            self._attempt.exchange.response_data(b"", True)
        elif not (state == _BODY and self._body.eof()):
            self._fail(Reason.PEER_CLOSED)

    def writable(self, is_writable: bool) -> None:
        self._is_writable = is_writable
        attempt = self._attempt
        if attempt is not None and self._state != _CONNECTING:
            if is_writable:
                attempt.exchange.client_ready()
            else:
                attempt.exchange.client_blocked()

    def lost(self, reason: Reason) -> None:
        progress = self._progress(reason)
        self._state = _CLOSED
        self._body.close()
        self._pool.retire(self)
        self._tell(reason, progress)

    # ---- ClientStream

    def send_head(self, head: RequestHead, end: bool) -> None:
        self._request = head
        self._request_ended = end
        self._is_unanswered = True
        is_chunked = self._is_chunked = not end and head.body_size == UNKNOWN
        renderings = head.renderings
        if renderings is not None and renderings.http1 and not is_chunked and not head.wants_tunnel:
            self._wire.write(renderings.http1)
        else:
            if head.wants_tunnel and not end and head.body_size <= 0 and not is_chunked:
                self._early = []
            if head.has_crumbs:
                head = head.with_one_cookie()
            self._wire.write(h1.write_request(head, is_chunked))
        if not end and not self._is_writable and self._attempt is not None:
            self._attempt.exchange.client_blocked()

    def send_data(self, data: bytes, end: bool) -> None:
        early = self._early
        if early is not None:
            self._hold_early(early, data, end)
            return
        if self._is_chunked:
            write_chunk(self._wire, data, end)
        elif data:
            self._wire.write(data)
        if end:
            self._request_ended = True
            if self._state == _TUNNEL:
                self._wire.end()

    def send_trailers(self, fields: list[Field]) -> None:
        self._request_ended = True
        if self._is_chunked:
            self._wire.write(last_chunk(fields))

    def end_sending(self) -> bool:
        self._keeps_alive = False
        self._wire.end()
        return True

    def reset(self, reason: Reason) -> None:
        self._attempt = None
        self._body.stop()
        self._retire()
        self._wire.abort(reason)

    def pause_reading(self, cause: int) -> None:
        self._pauses.add(cause)

    def resume_reading(self, cause: int) -> None:
        self._pauses.remove(cause)

    # ---- BodySink

    def body_data(self, data: bytes, end: bool) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        if end:
            self._finish(self._body.has_surplus)
        attempt.exchange.response_data(data, end)

    def body_trailers(self, fields: list[Field]) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        self._finish(self._body.has_surplus)
        attempt.exchange.response_trailers(fields)

    # ---- reading

    def _read_head(self, data: bytes) -> bytes:
        self._is_unanswered = False
        text, end, rest = data.partition(b"\r\n\r\n")
        if not end or len(text) > limits.HEAD_BYTES:
            return self._partial_head(data)
        attempt = self._attempt
        head = h1.known_response(text)
        if head is None or attempt is None or self._request.method in _BODILESS:
            return self._read_new_head(data, text, rest)
        self.keep_alive_s = 0.0  # it said nothing of it
        if head.body_size != len(rest):
            return self._begin_body(attempt, head, rest, False)
        # The whole body came with its head: the most common answer needs no reader.
        attempt.response_head(head, False)
        if self._attempt is attempt:
            self._finish(False)
            attempt.exchange.response_data(rest, True)
        return b""

    def _read_new_head(self, data: bytes, text: bytes, rest: bytes) -> bytes:
        attempt = self._attempt
        start_line, _, lines = text.partition(b"\r\n")
        try:
            block = header_block(lines)
            head = h1.read_response(start_line, block, self._request.method)
        except ProtocolError as error:
            return repaired_response(data, error)
        if attempt is None:
            return b""
        if head.body_size == TUNNEL:
            self._begin_tunnel(attempt, head)
            return rest
        if head.status < 200:
            attempt.exchange.response_informational(head)
            return rest
        self.keep_alive_s = block.keep_alive_s
        # After a refused CONNECT it is unknown whether the server read the bytes that were meant for the tunnel.
        if self._request.method == b"CONNECT" or not h1.may_be_followed(head, block):
            self._keeps_alive = False
        elif self._request.method != b"HEAD":
            h1.remember_response(text, block, head)
        if head.body_size == 0:
            self._finish(bool(rest))
            attempt.response_head(head, True)
            return rest
        return self._begin_body(attempt, head, rest, block.transfer is not None and block.transfer.is_chunked)

    def _begin_body(self, attempt: Attempt, head: ResponseHead, rest: bytes, is_chunked: bool) -> bytes:
        """`rest` is what came behind the head. Returns it for the body's reader."""
        if head.body_size == UNKNOWN and not is_chunked:
            self._keeps_alive = False
        self._state = _BODY
        self._body.begin(head.body_size, is_chunked)
        attempt.response_head(head, False)
        return rest

    def _partial_head(self, data: bytes) -> bytes:
        better = with_crlf(data)
        if better is not None:
            return better
        if len(data) > limits.HEAD_BYTES:
            raise ProtocolError(Reason.RESPONSE_HEAD_LIMIT.value, Reason.RESPONSE_HEAD_LIMIT)
        self._held = data
        return b""

    def _begin_tunnel(self, attempt: Attempt, head: ResponseHead) -> None:
        request = self._request
        if not request.wants_tunnel or not (self._request_ended or self._early is not None):
            raise ProtocolError("a tunnel that was not asked for")
        if head.status == 101 and not is_asked_for(head.upgrade, request.upgrade):
            raise ProtocolError("a tunnel for a protocol that was not asked for")
        self._state = _TUNNEL
        self._is_chunked = self._request_ended = False
        early = self._early
        self._early = None
        attempt.response_head(head, False)
        if early is not None and self._attempt is attempt:
            for data in early:
                self.send_data(data, not data)
            attempt.exchange.client_ready()

    def _hold_early(self, early: list[bytes], data: bytes, end: bool) -> None:
        if data:
            keep(early, data)
        if end:
            early.append(b"")
        elif self._attempt is not None:
            self._attempt.exchange.client_blocked()

    def _finish(self, has_surplus: bool) -> None:
        """The response is complete: back to the pool, or away."""
        self._attempt = self._early = None
        self._request = _NO_HEAD  # an idle connection holds on to nothing of what passed
        self._was_used = True
        if self._pauses.causes:  # by the exchange that is over
            self._pauses.remove(ANY)
        if self._keeps_alive and self._request_ended and not has_surplus:
            self._state = _IDLE
            self._pool.release(self)
        else:
            self._retire()
            if self._request_ended:
                self._wire.abort(Reason.COMPLETE)

    def _retire(self) -> None:
        self._state = _CLOSED
        self._pool.retire(self)

    def _fail(self, reason: Reason) -> None:
        progress = self._progress(reason)
        self._body.stop()
        self._retire()
        self._wire.abort(reason)
        self._tell(reason, progress)

    def _progress(self, reason: Reason) -> int:
        """How far the request can have got when the connection ends for this reason."""
        if self._state == _CONNECTING:
            return NOT_BEGUN
        return RACED if self._is_unanswered and self._was_used and reason in _RACES else BEGUN

    def _tell(self, reason: Reason, progress: int) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.response_reset(reason, 0, progress)

    def __repr__(self) -> str:
        return f"H1Client {_STATES[self._state]} {self._attempt!r}"
