"""Exchange: one request and its response; the only object that both sides share.

Streams call `request_*` and `response_*`, stages call `attach`, `reply`
and `cancel`, and it ends exactly once. It forwards and keeps the books; it
never parses, never writes, never reads a clock that it was not given.
"""

from __future__ import annotations

from typing import Final, Protocol

from proxy.core.errors import report_fault
from proxy.core.reactor import Clock as Clock
from proxy.core.reason import Reason
from proxy.core.timers import Timer
from proxy.http.head import TUNNEL, RequestHead, ResponseHead
from proxy.http.headers import Field
from proxy.http.replies import answer, grpc_trailers, is_grpc
from proxy.http.stream import OTHER_SIDE_FULL, WAITING, ClientStream, ServerStream, keep

_ANSWERS: Final[dict[Reason, tuple[int, int]]] = {
    Reason.CONNECT_TIMEOUT: (504, 4),
    Reason.RESPONSE_TIMEOUT: (504, 4),
    Reason.OVER_LIMIT: (431, 8),
    Reason.PEER_TRAILERS_LIMIT: (431, 8),
    Reason.RESPONSE_HEAD_LIMIT: (502, 8),
    Reason.TRAILERS_LIMIT: (502, 8),
    Reason.SHUTDOWN: (503, 14),
    Reason.PEER_REFUSED: (503, 14),
    Reason.INTERNAL: (500, 13),
}
"""HTTP and gRPC status for a client whose request ends before its response began and whom no rescue answers; else 502 and 14."""


_FORWARDED: Final = (Reason.PEER_RESET, Reason.PEER_REFUSED)
"""What an endpoint said about one stream reaches the client as it was said."""


class Observer(Protocol):
    """Built once per target by a stage; told twice per exchange."""

    def response_began(self, exchange: Exchange) -> None:
        """The first body bytes, trailers, or the end of a response without a body; at most once.

        Where Linkerd stops the latency clock and lets go of an endpoint's load (docs/linkerd/balancing.md, section 3.1).
        Not said of an exchange that ends without a response.
        """

    def exchange_ended(self, exchange: Exchange) -> None: ...


class ResponseEditor(Protocol):
    """Built once per route or endpoint by a stage: what changes about a response's head on its way back."""

    def edit_response(self, exchange: Exchange, head: ResponseHead) -> None:
        """Called once, before the head goes to the server stream; not for answers that a stage makes (`reply`)."""


class Rescue(Protocol):
    """Built once per accepted connection: how a failure becomes an answer there (docs/linkerd/inbound.md, section 11; docs/linkerd/outbound.md, section 10)."""

    def rescue(self, exchange: Exchange, reason: Reason) -> None:
        """Called when an exchange fails before its response began: reply (or `server.reset`) and return.

        `exchange.context` names what failed; `exchange.client` is gone already. If it does neither, a plain answer is given.
        """


class Stage(Protocol):
    """A step of the way: attach a client stream, reply, or park the exchange."""

    def dispatch(self, exchange: Exchange) -> None: ...


class Exchange:
    __slots__ = (
        "server", "client", "request", "response", "request_ended", "response_ended", "reason",
        "started_at", "sent_at", "observer", "editor", "rescue", "context", "reset_code", "deadline", "has_begun", "trailers",
        "_held", "_held_trailers", "_is_server_full",
    )  # fmt: skip

    def __init__(self, server: ServerStream, request: RequestHead, started_at: float) -> None:
        self.server = server
        self.client: ClientStream | None = None
        self.request = request
        self.response: ResponseHead | None = None
        self.request_ended = False
        self.response_ended = False
        self.reason: Reason | None = None
        """Why it ended; None while it runs."""
        self.started_at = started_at
        self.sent_at = started_at
        """When it was given to an endpoint: later than `started_at` if it waited in a line."""
        self.observer: Observer | None = None
        self.editor: ResponseEditor | None = None
        self.rescue: Rescue | None = None
        self.context = ""
        """What the exchange was given to last, for texts: `endpoint 10.0.0.1:8080`."""
        self.reset_code = 0
        """The HTTP/2 error code that the endpoint reset its stream with, when the reason is PEER_RESET or PEER_REFUSED."""
        self.has_begun = False
        """`response_began` was told to the observer."""
        self.trailers: list[Field] | None = None
        """The response's, once they have come: where gRPC says how the call went."""
        self.deadline: Timer | None = None
        """While a stage wants a response head in time."""
        self._held: list[bytes] | None = None
        self._held_trailers: list[Field] | None = None
        self._is_server_full = False
        """The client's side takes no more, which an endpoint that is attached late must hear too."""

    # ---- the server stream

    def request_head(self, stage: Stage, end: bool) -> None:
        self.request_ended = end
        try:
            stage.dispatch(self)
        except Exception:
            report_fault()
            self._fail(Reason.INTERNAL)
        if self.client is None and self.reason is None and not end:
            self.server.pause_reading(WAITING)

    def request_data(self, data: bytes, end: bool) -> None:
        self.request_ended = end
        client = self.client
        if client is not None:
            client.send_data(data, end)
            if end and self.response_ended:
                self._end(Reason.COMPLETE)  # a tunnel, whose other way ended first
        elif self.reason is None:
            # At most what one read or one window brought, since reading is paused.
            if self._held is None:
                self._held = []
            keep(self._held, data)

    def request_trailers(self, fields: list[Field]) -> None:
        self.request_ended = True
        client = self.client
        if client is not None:
            client.send_trailers(fields)
        else:
            self._held_trailers = fields

    def request_reset(self, reason: Reason) -> None:
        """The client gave up, or broke the rules; its stream is gone already."""
        self._end(reason)

    def request_refused(self, status: int, text: str) -> None:
        """The request's body breaks the rules: its client is told why, if its answer has not begun, and loses its connection."""
        if self.response is None:
            self.reply(answer(self.request, status, 3, text, True, False), Reason.BAD_REQUEST, closes=True)
        elif self.reason is None:
            self.server.reset(Reason.BAD_REQUEST)
            self._end(Reason.BAD_REQUEST)

    # ---- the client stream

    def response_informational(self, head: ResponseHead) -> None:
        self.server.send_informational(head)

    def response_head(self, head: ResponseHead, end: bool) -> None:
        self.response = head
        deadline = self.deadline
        if deadline is not None:
            deadline.cancel()
            self.deadline = None
        self.response_ended = end
        if head.body_size == TUNNEL:
            self.request_ended = False  # from here on its bytes are the tunnel's
        editor = self.editor
        if editor is not None:
            editor.edit_response(self, head)
        self.server.send_head(head, end)
        if end:
            self._begin_response()
            self._end(Reason.COMPLETE if self.request_ended else Reason.EARLY_RESPONSE)

    def response_data(self, data: bytes, end: bool) -> None:
        self.response_ended = end
        if not self.has_begun:
            self.has_begun = True
            observer = self.observer
            if observer is not None:
                observer.response_began(self)
        self.server.send_data(data, end)
        if end:
            if self.request_ended:
                self._end(Reason.COMPLETE)
            elif self.response is None or self.response.body_size != TUNNEL:
                self._end(Reason.EARLY_RESPONSE)

    def response_trailers(self, fields: list[Field]) -> None:
        self.response_ended = True
        self.trailers = fields
        if not self.has_begun:
            self._begin_response()
        self.server.send_trailers(fields)
        self._end(Reason.COMPLETE if self.request_ended else Reason.EARLY_RESPONSE)

    def response_reset(self, reason: Reason) -> None:
        """The endpoint failed; its stream is gone already."""
        self.client = None
        if self.response is not None and self.reason is None and reason not in _FORWARDED and is_grpc(self.request):
            self._end_call(reason)
        else:
            self._fail(reason)

    # ---- stages

    def attach(self, client: ClientStream) -> None:
        """Send the request over this stream, and what was held for it. A stream that comes too late is reset."""
        if self.reason is not None:
            client.reset(Reason.CANCELLED)
            return
        self.client = client
        if self._is_server_full:
            client.pause_reading(OTHER_SIDE_FULL)
        held = self._held
        trailers = self._held_trailers
        if held is None and trailers is None:
            client.send_head(self.request, self.request_ended)
            if not self.request_ended:
                self.server.resume_reading(WAITING)
            return
        client.send_head(self.request, False)
        self._held = self._held_trailers = None
        if held is not None:
            last = len(held) - 1
            for index, data in enumerate(held):
                client.send_data(data, index == last and self.request_ended and trailers is None)
        if trailers is not None:
            client.send_trailers(trailers)
        self.server.resume_reading(WAITING)

    def reply(self, head: ResponseHead, reason: Reason, closes: bool = False, body: bytes = b"") -> None:
        """Answer from here; `head` carries its content-length. The request, if it still comes, is the server stream's to swallow.

        `closes` takes the client's connection down after this answer.
        """
        if self.response is not None or self.reason is not None:
            return
        self.response = head
        self.response_ended = True
        if closes:
            self.server.close_connection()
        self.server.send_head(head, not body)
        if body:
            self.server.send_data(body, True)
        self._begin_response()
        self._end(reason)

    def cancel(self, reason: Reason) -> None:
        self._fail(reason)

    # ---- both sides: backpressure, deadline

    # A direction that has ended pauses nobody: its connection may carry another exchange already.

    def client_blocked(self) -> None:
        if not self.request_ended:
            self.server.pause_reading(OTHER_SIDE_FULL)

    def client_ready(self) -> None:
        self.server.resume_reading(OTHER_SIDE_FULL)

    def server_blocked(self) -> None:
        self._is_server_full = True
        client = self.client
        if client is not None and not self.response_ended:
            client.pause_reading(OTHER_SIDE_FULL)

    def server_ready(self) -> None:
        self._is_server_full = False
        client = self.client
        if client is not None and not self.response_ended:
            client.resume_reading(OTHER_SIDE_FULL)

    def response_too_late(self) -> None:
        self.deadline = None
        self._fail(Reason.RESPONSE_TIMEOUT)

    # ---- the end

    def _begin_response(self) -> None:
        self.has_begun = True
        observer = self.observer
        if observer is not None:
            observer.response_began(self)

    def _fail(self, reason: Reason) -> None:
        if self.reason is not None:
            return
        if self.response is not None:
            self.server.reset(reason)
            self._end(reason)
            return
        client = self.client
        if client is not None:
            self.client = None
            client.reset(reason)
        rescue = self.rescue
        if rescue is not None:
            rescue.rescue(self, reason)
        # Not `if self.reason is None`: mypyc believes the check above for ever. After a rescue, `reply` does nothing.
        status, code = _ANSWERS.get(reason, (502, 14))
        self.reply(answer(self.request, status, code, reason.value, False, False), reason)

    def _end_call(self, reason: Reason) -> None:
        """A gRPC call that is cut off ends with a status that says so: what a reset says is for transports, and reads as
        CANCELLED to most clients (gRPC HTTP/2 mapping, section "Errors")."""
        code = _ANSWERS.get(reason, (502, 14))[1]
        self.server.send_trailers(grpc_trailers(code, reason.value))
        self._end(reason)

    def _end(self, reason: Reason) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        deadline = self.deadline
        if deadline is not None:
            deadline.cancel()
            self.deadline = None
        client = self.client
        self.client = None
        if client is not None and reason is not Reason.COMPLETE:
            client.reset(reason)
        observer = self.observer
        if observer is not None:
            observer.exchange_ended(self)

    def __repr__(self) -> str:
        """`Exchange GET web/a H1Server→H1Client request:open response:200 body`."""
        way = f"{type(self.server).__name__}→{type(self.client).__name__ if self.client is not None else '?'}"
        request = "ended" if self.request_ended else "open"
        response = "waiting"
        if self.response is not None:
            response = f"{self.response} {'ended' if self.response_ended else 'body'}"
        ended = f" {self.reason.name.lower()}" if self.reason is not None else ""
        return f"Exchange {self.request!r} {way} request:{request} response:{response}{ended}"
