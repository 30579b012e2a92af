"""Exchange: the client's side of one request: the request as it came, its answer, and the facts about both.

Server streams call `request_*`; the one that answers calls `response_*`: an Attempt at an endpoint (attempt.py), or a stage
itself. Stages call `attach`, `reply` and `cancel`. It ends exactly once. It forwards and keeps the facts; it never parses,
never writes, and never reads a clock that it was not given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError, report_fault
from proxy.core.failure.reason import COMPLETE, Reason
from proxy.core.histogram import Histogram
from proxy.core.loop.effort import Effort
from proxy.core.loop.reactor import Clock, stopped_at
from proxy.http.ending.endings import ENDINGS
from proxy.http.ending.replies import answer, grpc_trailers, is_grpc
from proxy.http.head import TUNNEL, RequestHead, ResponseHead
from proxy.http.headers import Field
from proxy.http.repeat.held import Held
from proxy.http.repeat.place import Place
from proxy.http.running import RunningTries
from proxy.http.stream import OTHER_SIDE_FULL, WAITING, ClientStream, RunningAttempt, ServerStream

_RESETS: Final = (Reason.PEER_RESET, Reason.PEER_REFUSED, Reason.CANCELLED)
"""Reasons that reset even a gRPC call: the reasons that an endpoint gives for its stream, and that the client no longer waits."""


class Observer(Protocol):
    """Built once per target by a stage, and put into `Exchange.observers`; sees two events of each exchange."""

    def response_began(self, exchange: Exchange) -> None:
        """The first body bytes, trailers, or the end of a response without a body, which a tunnel's is; at most once, at
        `exchange.answered_at`. Where Linkerd stops the latency clock (docs/linkerd/balancing.md, section 3.1)."""

    def exchange_ended(self, exchange: Exchange) -> None: ...


class Outcomes(Protocol):
    """Counts each exchange once, a tunnel when it opens, any other when it has ended; it is put into `Exchange.outcomes`."""

    def tunnel_began(self, exchange: Exchange) -> None: ...

    def exchange_ended(self, exchange: Exchange) -> None: ...


class ResponseEditor(Protocol):
    """Built once per route by a stage: what changes about a response's head on its way back."""

    def edit_response(self, exchange: Exchange, head: ResponseHead) -> ResponseHead:
        """The head that the client gets, never the given one edited. Called once; not for answers that a stage makes (`reply`)."""


class Rescue(Protocol):
    """Built once per accepted connection: how a failure becomes an answer there (docs/linkerd/inbound.md, section 11; docs/linkerd/outbound.md, section 10)."""

    def rescue(self, exchange: Exchange, reason: Reason) -> None:
        """It failed before its response began: call `reply` or `server.reset`; if neither is called, it gets a plain answer."""

    @property
    def informs(self) -> bool:
        """Whether the client may read the reason."""


class Stage(Protocol):
    """A step of the way: attach a client stream, reply, or park the exchange."""

    def dispatch(self, exchange: Exchange) -> None: ...


class Exchange:
    __slots__ = (
        "server", "client", "request", "response", "request_ended", "response_ended", "reason", "trailers", "reset_code",
        "accepted_at", "dispatched_at", "request_ended_at", "answered_at", "ended_at", "request_bytes", "response_bytes",
        "request_frames", "response_frames", "is_body_sent", "attempts", "attempt", "tries", "route", "backend", "endpoint", "failure",
        "observers", "outcomes", "editor", "rescue", "effort", "has_begun", "is_broken", "is_server_full",
        "clock", "_on_gone", "_held", "has_left", "_informed_bytes",
    )  # fmt: skip

    def __init__(self, server: ServerStream, request: RequestHead, now: float, clock: Clock | None = None) -> None:
        """`now` is when the request's head was read; without a clock the later times stay at that."""
        self.server = server
        self.client: ClientStream | None = None
        # As it came, or as a stage read it (`l5d-orig-proto`, absolute form). Never edited: every attempt begins with the same.
        self.request = request
        self.response: ResponseHead | None = None
        self.request_ended = self.response_ended = False
        self.reason: Reason | None = None  # why it ended; None while it runs
        self.trailers: list[Field] | None = None  # the response's, once they have come
        self.reset_code = 0  # HTTP/2's, that the endpoint reset its stream with: PEER_RESET or PEER_REFUSED
        self.accepted_at = now
        self.dispatched_at = now  # stages could begin to route it: later if its destination had to be found out
        self.request_ended_at = now  # when its end came
        self.answered_at = self.ended_at = now  # the first is when `has_begun` became true
        self.request_bytes = self.response_bytes = self._informed_bytes = 0  # of bodies, as they came; of 1xx heads
        # The sizes of the pieces in which bodies came, if a stage counts them; a tunnel's bytes are not counted.
        self.request_frames: Histogram | None = None
        self.response_frames: Histogram | None = None
        self.is_body_sent = False  # some of the body, or its trailers, has gone to a client stream
        self.attempts = 0
        self.attempt: RunningAttempt | None = None  # the running one, which is informed of the exchange's progress
        self.tries: RunningTries | None = None  # while its route has retries or timeouts that are not over
        self.route: Place | None = None
        self.backend: Place | None = None
        self.endpoint: Place | None = None
        self.failure = ""  # the metrics' label: why it has no whole response (docs/linkerd/metrics.md, section 7)
        self.observers: tuple[Observer, ...] = ()
        self.outcomes: tuple[Outcomes, ...] = ()
        self.editor: ResponseEditor | None = None
        self.rescue: Rescue | None = None
        self.effort: Effort | None = None  # what the expressions of policies may still cost; None before any was tried
        self.has_begun = False  # the observers' `response_began` was called
        self.is_broken = False  # it failed on the endpoint's side, or here: the client would have stayed
        self.clock: Clock = clock or stopped_at(now)
        self._on_gone: Callable[[], None] | None = None
        self._held: Held | None = None
        self.has_left = False  # the client ended its side after a whole request
        self.is_server_full = False  # the client's side takes no more: an endpoint attached late must be paused too

    # ---- the server stream

    def request_head(self, stage: Stage, end: bool) -> None:
        self.request_ended = end
        try:
            stage.dispatch(self)
        except Exception:
            report_fault()
            self.cancel(Reason.INTERNAL)
        if not end and self.client is None and self.reason is None:
            self.server.pause_reading(WAITING)

    def request_data(self, data: bytes, end: bool) -> None:
        self.request_ended = end
        self.request_bytes += len(data)
        frames = self.request_frames
        if frames is not None and data:
            frames.observe(len(data))
        if end:
            self._request_is_here()
        client = self.client
        if client is not None:
            if data:
                self.is_body_sent = True
            client.send_data(data, end)
            if end and self.response_ended:
                self._end(Reason.COMPLETE)  # a tunnel, whose other way ended first
        elif self.reason is None:
            held = self._held = self._held or Held()  # little comes: reading is paused by now
            held.add(data)

    def request_trailers(self, fields: list[Field]) -> None:
        self.request_ended = True
        self._request_is_here()
        client = self.client
        if client is not None:
            self.is_body_sent = True
            client.send_trailers(fields)
        elif self.reason is None:
            held = self._held = self._held or Held()
            held.end_with(fields)

    def _request_is_here(self) -> None:
        self.request_ended_at = self.clock()
        tries = self.tries
        if tries is not None:
            tries.request_sent()

    def request_left(self) -> None:
        """The client ended its side after a whole request, or has gone. HTTP/1 passes the end on, and the endpoint may still
        answer; a stream of HTTP/2 cannot express it, so there the client is taken to have gone."""
        self.has_left = True
        client = self.client
        if client is not None and not client.end_sending():
            self.server.reset(Reason.PEER_CLOSED)
            self._end(Reason.PEER_CLOSED)

    def request_reset(self, reason: Reason) -> None:
        """The client gave up, or broke the rules; its stream is gone already."""
        self._end(reason)

    def request_refused(self, status: int, text: str) -> None:
        """The request's body breaks the rules: the client gets an error if its answer has not begun, and is disconnected."""
        if self.response is None:
            self.reply(answer(self.request, status, 3, text, True, False), Reason.BAD_REQUEST, closes=True)
        elif self.reason is None:
            self.server.reset(Reason.BAD_REQUEST)
            self._end(Reason.BAD_REQUEST)

    # ---- called by the one that answers: an attempt, or a stage itself

    def response_informational(self, head: ResponseHead) -> None:
        self._informed_bytes += limits.INFORMATIONAL_BYTES + sum([one.size for one in head.fields])
        if self._informed_bytes > limits.HEAD_BYTES:  # no window would hold them back from a client that does not read
            raise ProtocolError(Reason.RESPONSE_HEAD_LIMIT.value, Reason.RESPONSE_HEAD_LIMIT)
        if head.status != 100 or not self.request_ended or self.attempts < 2:  # the first 100 sufficed
            self.server.send_informational(head)

    def response_head(self, head: ResponseHead, end: bool) -> None:
        self.response, self.response_ended = head, end
        if head.body_size == TUNNEL:
            self.request_ended = False  # from here on its bytes are the tunnel's
            self.request_frames = self.response_frames = None
        editor = self.editor
        if editor is not None:
            head = self.response = editor.edit_response(self, head)
        self.server.send_head(head, end)
        if end or head.body_size == TUNNEL:
            self._begin_response()  # it has no body
            if head.body_size == TUNNEL:
                for outcomes in self.outcomes:
                    outcomes.tunnel_began(self)
        if end:
            self._end(COMPLETE if self.request_ended else Reason.EARLY_RESPONSE)

    def response_data(self, data: bytes, end: bool) -> None:
        if not self.has_begun:
            tries = self.tries
            if tries is not None and tries.holds_data(data, end):
                return
            self._begin_response()
        self.response_ended = end
        self.response_bytes += len(data)
        frames = self.response_frames
        if frames is not None and data:
            frames.observe(len(data))
        self.server.send_data(data, end)
        if end:
            if self.request_ended:
                self._end(COMPLETE)
            elif self.response is None or self.response.body_size != TUNNEL:
                self._end(Reason.EARLY_RESPONSE)

    def response_trailers(self, fields: list[Field]) -> None:
        tries = self.tries
        if tries is not None and tries.holds_trailers(fields):
            return
        self.response_ended = True
        self.trailers = fields
        if not self.has_begun:
            self._begin_response()
        self.server.send_trailers(fields)
        self._end(COMPLETE if self.request_ended else Reason.EARLY_RESPONSE)

    def response_reset(self, reason: Reason) -> None:
        """The endpoint failed; its stream is gone already."""
        self.client, self.is_broken = None, self.reason is None
        if self.response is not None and self.reason is None and reason not in _RESETS and is_grpc(self.request):
            self._end_call(reason)
        else:
            self._fail(reason)

    # ---- stages

    def attach(self, client: ClientStream, head: RequestHead | None = None) -> None:
        """Send the request, or `head` in its place, and what was held for it; a stream that comes too late is reset."""
        if self.reason is not None:
            client.reset(Reason.CANCELLED)
            return
        tries = self.tries
        if tries is not None:
            client = tries.attached(client, self.request_ended and self._held is None)
        self.client = client
        self._on_gone = None
        if head is None:
            head = self.request
        if self.is_server_full:
            client.pause_reading(OTHER_SIDE_FULL)
        held = self._held
        if held is None:
            client.send_head(head, self.request_ended)
        else:
            self._held = None
            self.is_body_sent = True
            client.send_head(head, False)
            held.send(client, self.request_ended)
        if not self.request_ended or held is not None:
            self.server.resume_reading(WAITING)
        if self.has_left:
            self.request_left()

    def detach(self) -> None:
        """The client stream is gone, and the request is to go to another one."""
        self.client = None
        if not self.request_ended:
            self.server.pause_reading(WAITING)

    def park(self, on_gone: Callable[[], None]) -> None:
        """The exchange waits for something; `on_gone` is called if it ends before `attach` or `unpark`."""
        self._on_gone = on_gone

    def unpark(self) -> None:
        self._on_gone = None

    def reply(self, head: ResponseHead, reason: Reason, closes: bool = False, body: bytes = b"") -> None:
        """Answer from here; `head` carries its content-length. The rest of the request is discarded; `closes`: its connection ends."""
        if self.response is not None or self.reason is not None:
            return
        self.response, self.response_ended = head, True
        if closes:
            self.server.close_connection()
        self.server.send_head(head, not body)
        if body:
            self.server.send_data(body, True)
        self._begin_response()
        self._end(reason)

    def cancel(self, reason: Reason) -> None:
        client = self.client
        if client is not None:
            client.reset(reason)
        self.response_reset(reason)

    # ---- both sides: backpressure. A direction that has ended pauses nothing: its connection may carry another exchange.

    def client_blocked(self) -> None:
        if not self.request_ended:
            self.server.pause_reading(OTHER_SIDE_FULL)

    def client_ready(self) -> None:
        self.server.resume_reading(OTHER_SIDE_FULL)

    def server_blocked(self) -> None:
        self.is_server_full = True
        if self.client is not None and not self.response_ended:
            self.client.pause_reading(OTHER_SIDE_FULL)

    def server_ready(self) -> None:
        self.is_server_full = False
        if self.client is not None and not self.response_ended:
            self.client.resume_reading(OTHER_SIDE_FULL)

    # ---- the end

    def _begin_response(self) -> None:
        self.has_begun = True
        clock = self.clock  # a local: CPython 3.11 is slow to call what a slot holds by its attribute
        self.answered_at = clock()
        attempt = self.attempt
        if attempt is not None:
            attempt.answered()
        for observer in self.observers:
            observer.response_began(self)

    def _fail(self, reason: Reason) -> None:
        if self.reason is not None:
            return
        if self.response is not None:
            self.server.reset(reason)
            self._end(reason)
            return
        rescue = self.rescue
        if rescue is not None:
            rescue.rescue(self, reason)
        # Not `if self.reason is None`: mypyc believes the check above for ever. After a rescue, `reply` does nothing.
        failure = ENDINGS[reason].failure
        self.reply(answer(self.request, failure.status, failure.grpc_code, reason.value, False, False), reason)

    def _end_call(self, reason: Reason) -> None:
        """A gRPC call is cut off: a reset would read as CANCELLED to most clients (gRPC HTTP/2 mapping, section "Errors")."""
        code, rescue = ENDINGS[reason].failure.grpc_code, self.rescue
        self.server.send_trailers(grpc_trailers(code, reason.value if rescue is not None and rescue.informs else ""))
        self._end(reason)

    def _end(self, reason: Reason) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        client, self.client = self.client, None
        if client is not None and reason is not COMPLETE:
            client.reset(reason)
        clock = self.clock
        self.ended_at = clock()
        attempt = self.attempt
        if attempt is not None:
            self.attempt = None  # it points back here; without the cycle both are freed at once
            attempt.end(reason)
        tries = self.tries
        if tries is not None:
            self.tries = None
            tries.ended()
        on_gone = self._on_gone
        if on_gone is not None:
            self._on_gone = None
            on_gone()
        for observer in self.observers:
            observer.exchange_ended(self)
        for outcomes in self.outcomes:
            outcomes.exchange_ended(self)

    def __repr__(self) -> str:
        """`Exchange GET web/a H1Server→H1Client request:open response:200 body`."""
        way = f"{type(self.server).__name__}→{type(self.client).__name__ if self.client is not None else '?'}"
        request = "ended" if self.request_ended else "open"
        state = "ended" if self.response_ended else "body"
        response = f"{self.response} {state}" if self.response is not None else "waiting"
        ended = f" {self.reason.name.lower()}" if self.reason is not None else ""
        return f"Exchange {self.request!r} {way} request:{request} response:{response}{ended}"
