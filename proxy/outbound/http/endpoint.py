"""HTTP endpoints: one address of a backend, the connections to it, its load and its numbers (docs/linkerd/outbound.md, section 9).

It is built when discovery names it and closed when discovery removes it; running
requests keep their streams. The endpoint is the target of its attempts: its load
begins and ends with them, and it counts how they ended. An HTTP/1 endpoint is
ready until it refuses a connection while another endpoint can take its place,
and again when a connection to it can be made; the last one stays ready, and its
clients get 502. An HTTP/2 endpoint is ready only while a connection is open.
"""

from __future__ import annotations

import logging
from typing import Final

from proxy.balance.breaker import Breaker
from proxy.balance.gate import Gate
from proxy.balance.load.load import ANSWERED, BROKEN, FAILED, GIVEN_UP, Load
from proxy.balance.reconnect import Reconnect
from proxy.config import Config
from proxy.core.address.addr import Addr
from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import COMPLETE, Reason
from proxy.http import orig_proto
from proxy.http.attempt import Attempt
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.h2.client import H2Client
from proxy.http.h2.frames.frame import DEFAULT_WINDOW, WINDOW_LIMIT
from proxy.http.h2.frames.settings import H2Settings
from proxy.http.head import HTTP_2, RequestHead, ResponseHead
from proxy.http.pool import Pool
from proxy.metrics.scope import Ended
from proxy.outbound.backend.connect import Dialler, SessionProtocol, as_reached
from proxy.outbound.backend.loads import Balancing
from proxy.outbound.backend.reach import Reach
from proxy.outbound.http.accrual.breaker import breaker_of, outcome_of
from proxy.outbound.http.accrual.penalty import penalties_of
from proxy.outbound.http.rescue import IDENTITY_REQUIRED, Rescue
from proxy.outbound.runtime import Runtime
from proxy.policy.client import FailureAccrual
from proxy.policy.endpoint import HINT_H2, EndpointMeta, Http2Params
from proxy.policy.profiles.classify import classify

_log: Final = logging.getLogger(__name__)

_UNANSWERED: Final = Ended(0, False, "", "unclassified")
_PATIENT_S: Final = 1.0
"""A client that gives up sooner has changed its mind; after this long, the log says which endpoint did not answer."""

_NOT_MADE: Final = (Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT)

_REQUIRE_ID: Final = b"l5d-require-id"
_DST_CANONICAL: Final = b"l5d-dst-canonical"
_PROXY_CONNECTION: Final = b"l5d-proxy-connection"
_PROXY_ERROR: Final = b"l5d-proxy-error"
_OF_PROXIES: Final = (_PROXY_ERROR, _PROXY_CONNECTION, orig_proto.NAME)
"""Fields of a response from one proxy to another, which the app never gets (docs/linkerd/outbound.md, section 9.6)."""


class HttpEndpoint:
    """What both kinds share: a Target and a Place. `authority` is the backend's name for labels, empty for a forward."""

    __slots__ = (
        "load", "context", "_runtime", "_kind", "_key", "_rescue", "_in_flight", "_scope", "_clock", "_server_id", "_override",
        "_may_close", "_gate", "_breaker", "_penalties",
    )  # fmt: skip

    def __init__(self, kind: EndpointKind, addr: Addr, meta: EndpointMeta, labels: tuple[tuple[str, str], ...]) -> None:
        runtime = kind.runtime
        self._runtime = runtime
        self._kind = kind
        self._rescue = kind.rescue
        self._in_flight = runtime.in_flight
        self._clock = runtime.reactor.clock
        self.load: Load = kind.balancing.load_of_endpoint(self._clock())
        self._penalties = penalties_of(self.load, kind.balancing.load, self._clock)
        self._scope = runtime.registry.requests("", (("direction", "outbound"), *labels))
        self._key = str(addr)
        self.context = f"endpoint {self._key}"
        self._server_id = meta.tls.server_id if meta.tls else ""
        self._override = meta.authority_override.encode()
        self._may_close = kind.is_forward and meta.tls is not None
        """Whether the peer's proxy may ask us to close the app's connection (docs/linkerd/outbound.md, section 9.2)."""
        self._gate: Gate[HttpEndpoint] | None = None
        self._breaker: Breaker | None = None

    # ---- its gate and its breaker

    def start(self, gate: Gate[HttpEndpoint]) -> None:
        """See balance.balancer.Endpoint."""
        self._gate = gate
        self.guard()
        self.begin(gate)

    def begin(self, gate: Gate[HttpEndpoint]) -> None:
        """Begin to be ready."""
        raise NotImplementedError

    def guard(self) -> None:
        """Get a new breaker by the backend's current policy; an endpoint that the old one held back is used again."""
        breaker, gate = self._breaker, self._gate
        if gate is not None:
            self._breaker = breaker_of(self._kind.accrual, gate, self._runtime.reactor.wheel, self._breaker_changed)
        if breaker is not None:
            breaker.close()

    def _breaker_changed(self, why: str) -> None:
        troubles = self._runtime.troubles
        if why:
            _log.info("%s: taken out of use by its breaker: %s", self.context, why)
            troubles.failed(self._key, f"its breaker is shut: {why}")
        else:
            _log.info("%s: in use again: a request that probed it succeeded", self.context)
            troubles.succeeded(self._key)

    def close(self) -> None:
        """The endpoint was evicted: what runs goes on."""
        self._gate = None
        breaker = self._breaker
        if breaker is not None:
            self._breaker = None
            breaker.close()

    # ---- a request

    def dispatch(self, attempt: Attempt) -> None:
        exchange = attempt.exchange
        exchange.endpoint = self
        exchange.attempt = attempt
        request = attempt.request
        if request.has_l5d:
            admitted = self._admitted(attempt, request)
            if admitted is None:
                return  # before it is the target, and counts as an attempt of this endpoint
            request = admitted
        attempt.target = self
        self.load.pending += 1
        self._in_flight.count += 1
        self._scope.requests += 1
        breaker = self._breaker
        if breaker is not None and breaker.is_probing:
            breaker.began(attempt)
        if self._override:
            request = request.renamed(self._override)
            request.fields = [one for one in request.fields if one.name != _DST_CANONICAL]
        self.open(attempt, request)

    def open(self, attempt: Attempt, request: RequestHead) -> None:
        """Give the attempt, with this head, to a connection."""
        raise NotImplementedError

    def refused(self) -> None:
        """A connection could not be made."""

    def _admitted(self, attempt: Attempt, request: RequestHead) -> RequestHead | None:
        """The request without fields that the app may not send to a peer; None if it was answered, because it asked for
        another endpoint."""
        required = [one.value.decode("latin-1") for one in request.fields if one.name == _REQUIRE_ID]
        for name in required:
            if name != self._server_id:
                found = f'"{self._server_id}"' if self._server_id else "none"
                self._rescue.fail(attempt.exchange, IDENTITY_REQUIRED, f'required id "{required[0]}"; found {found}')
                return None
        # Only this proxy may state how a request came, not its app, because the peer's proxy believes it.
        return request.with_fields([one for one in request.fields if one.name not in (_REQUIRE_ID, orig_proto.NAME)])

    # ---- Target

    def edit_response(self, attempt: Attempt, head: ResponseHead) -> ResponseHead:
        penalties = self._penalties
        if penalties is not None:
            penalties.head_came(attempt, head)
        if not head.has_l5d:
            return head
        if self._may_close and any(one.name == _PROXY_CONNECTION and one.value == b"close" for one in head.fields):
            attempt.exchange.server.close_connection()
        for one in head.fields:
            if one.name == _PROXY_ERROR:
                _log.info("%s: its sidecar answered %d: %s", self.context, head.status, one.value.decode("latin-1"))
        return head.with_fields([one for one in head.fields if one.name not in _OF_PROXIES])

    def attempt_answered(self, attempt: Attempt) -> None:
        exchange = attempt.exchange
        now = exchange.answered_at
        latency_s = now - attempt.sent_at
        self._in_flight.count -= 1
        response = exchange.response
        outcome = ANSWERED
        if response is None or attempt.has_failed:
            outcome = BROKEN
        elif response.status >= 500:
            outcome = FAILED
        penalties = self._penalties
        if penalties is None:
            self.load.end(latency_s, now, outcome)
        else:
            penalties.end(attempt, latency_s, now, outcome)
        if response is not None and not (exchange.failure and exchange.response_ended):
            self._scope.response_began(response.status, latency_s)

    def attempt_ended(self, attempt: Attempt, reason: Reason) -> None:
        if not attempt.has_begun:
            now = self._clock()
            self._in_flight.count -= 1
            outcome = BROKEN if attempt.has_failed else GIVEN_UP
            penalties = self._penalties
            if penalties is None:
                self.load.end(now - attempt.sent_at, now, outcome)
            else:
                penalties.end(attempt, now - attempt.sent_at, now, outcome)
            if not attempt.has_failed and now - attempt.sent_at > _PATIENT_S:
                _log.info("%s: the client gave up after %.0fs without an answer", self.context, now - attempt.sent_at)
        if reason is not COMPLETE and reason in _NOT_MADE:
            self.refused()
        exchange = attempt.exchange
        # An answer of ours to a failure, as when a timeout of the route has passed, is no response of this endpoint's.
        ended = _UNANSWERED if exchange.failure and exchange.response_ended else classify(exchange)
        if ended is not None:
            self._scope.count(ended)
        penalties = self._penalties
        if penalties is not None:
            penalties.forget(attempt)
        breaker = self._breaker
        if breaker is not None:
            breaker.ended(attempt, outcome_of(attempt, ended, reason), self._clock())


class Http1Endpoint(HttpEndpoint):
    """HTTP/1 connections, each for one authority."""

    __slots__ = ("_dialler", "_pool", "_reach")

    def __init__(self, kind: EndpointKind, addr: Addr, meta: EndpointMeta) -> None:
        self._dialler = kind.dialler(addr, meta, "http/1")
        super().__init__(kind, addr, meta, self._dialler.labels)
        self._pool = h1_pool(kind.runtime, self._dialler)
        self._reach: Reach[HttpEndpoint] = Reach(kind.runtime, self._dialler)

    def begin(self, gate: Gate[HttpEndpoint]) -> None:
        self._reach.start(self, gate)

    def open(self, attempt: Attempt, request: RequestHead) -> None:
        attempt.head = request
        self._pool.open(attempt)

    def close(self) -> None:
        super().close()
        self._reach.close()
        self._pool.close(Reason.SHUTDOWN)

    def refused(self) -> None:
        self._reach.refused()


def h1_pool(runtime: Runtime, dialler: Dialler) -> H1Pool:
    def dial(pool: Pool) -> H1Client:
        made: list[H1Client] = []

        def make(wire: Wire) -> Codec:
            made.append(H1Client(wire, pool, True))
            return made[0]

        dialler.dial(make, lambda: made[0].connected())
        return made[0]

    config = runtime.config
    idle_timeout_s = config.outbound_http1_connection_pool_idle_timeout_s
    return H1Pool(dial, runtime.reactor.wheel, idle_timeout_s, config.outbound_max_idle_conns_per_endpoint)


class Http2Endpoint(HttpEndpoint):
    """One pool that is connected in advance; beside it, for HTTP/1 clients, an HTTP/1 pool for requests for a tunnel."""

    __slots__ = ("_dialler", "_pool", "_tunnels", "_settings", "_reconnect", "_is_ready")

    def __init__(self, kind: EndpointKind, addr: Addr, meta: EndpointMeta) -> None:
        self._dialler = kind.dialler(addr, meta, "http/2")
        super().__init__(kind, addr, meta, self._dialler.labels)
        faults = kind.runtime.registry.faults("outbound")
        self._settings = settings_of(kind.runtime.config, meta.http2)._replace(faults=faults)
        self._pool = Pool(self._dial)
        self._pool.on_empty = self._emptied
        self._tunnels = None if kind.is_http2 else h1_pool(kind.runtime, kind.dialler(addr, meta, "http/1"))
        reactor = kind.runtime.reactor
        self._reconnect = Reconnect(reactor.wheel, kind.runtime.config.outbound_connect_backoff, self._pool.connect)
        self._is_ready = False

    def begin(self, gate: Gate[HttpEndpoint]) -> None:
        self._reconnect.start()

    def open(self, attempt: Attempt, request: RequestHead) -> None:
        if request.version != HTTP_2:
            tunnels = self._tunnels
            if tunnels is not None and request.wants_tunnel:
                attempt.head = request
                tunnels.open(attempt)
                return
            request = orig_proto.upgrade(request)
        attempt.head = request
        self._pool.open(attempt)

    def close(self) -> None:
        super().close()
        self._reconnect.stop()
        self._pool.close(Reason.SHUTDOWN)
        if self._tunnels is not None:
            self._tunnels.close(Reason.SHUTDOWN)

    def _dial(self, pool: Pool) -> H2Client:
        made: list[H2Client] = []

        def make(wire: Wire) -> Codec:
            made.append(H2Client(wire, pool, self._settings, self._runtime.reactor.wheel))
            return made[0]

        self._dialler.dial(make, self._connected)
        return made[0]

    def _connected(self) -> None:
        self._reconnect.succeeded()
        if not self._is_ready and self._gate is not None:
            self._is_ready = True
            self._gate.became_ready(self)

    def _emptied(self) -> None:
        if self._is_ready:
            self._is_ready = False
            if self._gate is not None:
                self._gate.became_pending(self)
        self._reconnect.lost()


def settings_of(config: Config, params: Http2Params) -> H2Settings:
    """The configuration's settings, overridden by those that discovery gives for the endpoint (docs/linkerd/outbound.md, section 9.3).

    A window counts only together with the other; adaptive ones begin as the configured ones and stay so.
    """
    stream_bytes = config.http2_initial_stream_window_size
    connection_bytes = config.http2_initial_connection_window_size
    if params.stream_window_bytes and params.connection_window_bytes and not params.is_adaptive:
        stream_bytes, connection_bytes = params.stream_window_bytes, params.connection_window_bytes
    settings = H2Settings(
        stream_window_bytes=min(stream_bytes, WINDOW_LIMIT),
        connection_window_bytes=min(max(connection_bytes, DEFAULT_WINDOW), WINDOW_LIMIT),
    )
    if params.max_frame_bytes:
        settings = settings._replace(max_frame_bytes=min(max(params.max_frame_bytes, 16384), 16777215))
    if params.keep_alive_interval_s and params.keep_alive_timeout_s:
        settings = settings._replace(
            keepalive_interval_s=params.keep_alive_interval_s,
            keepalive_timeout_s=params.keep_alive_timeout_s,
            keepalive_while_idle=params.keeps_alive_while_idle,
        )
    return settings


class EndpointKind:
    """What the endpoints of one backend have in common; it makes each of them."""

    __slots__ = ("runtime", "rescue", "is_http2", "is_forward", "balancing", "accrual", "_authority")

    def __init__(
        self, runtime: Runtime, rescue: Rescue, is_http2: bool, balancing: Balancing, authority: str | None
    ) -> None:
        """`authority` is the backend's name; None for a forward, which has no other than its address."""
        self.runtime: Final = runtime
        self.rescue: Final = rescue
        self.is_http2: Final = is_http2
        """Whether the clients speak HTTP/2; else HTTP/1, which may still be carried inside HTTP/2 to an endpoint."""
        self.balancing: Final = balancing
        self.accrual: FailureAccrual | None = None
        """The current policy's breaker; a change is applied to each endpoint by its `guard`."""
        self.is_forward: Final = authority is None
        self._authority = authority or ""

    def dialler(self, addr: Addr, meta: EndpointMeta, session: SessionProtocol) -> Dialler:
        return Dialler(self.runtime, addr, meta, self._authority, session)

    def make(self, addr: Addr, meta: EndpointMeta) -> HttpEndpoint:
        meta = as_reached(self.runtime, addr, meta)
        if self.is_http2 or meta.hint == HINT_H2:
            return Http2Endpoint(self, addr, meta)
        return Http1Endpoint(self, addr, meta)
