"""HTTP endpoints: one address of a backend, the connections to it, its load and its numbers (docs/linkerd/outbound.md, section 9).

Built when discovery names it, closed when discovery takes it away; a
request that runs keeps its stream. The endpoint is the observer of its
exchanges: it lets go of their load and counts how they ended. An HTTP/1
endpoint is always ready, a dead one answers 502; an HTTP/2 endpoint is ready
only while a connection stands.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.balance.ewma import PeakEwma
from proxy.balance.reconnect import Reconnect
from proxy.config import Config
from proxy.core.addr import Addr
from proxy.core.reason import Reason
from proxy.http import orig_proto
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.h2.client import H2Client
from proxy.http.h2.frame import DEFAULT_WINDOW, WINDOW_LIMIT
from proxy.http.h2.settings import H2Settings
from proxy.http.head import HTTP_2, RequestHead, ResponseHead
from proxy.http.pool import Pool
from proxy.metrics.http import HttpMetrics
from proxy.outbound.connect import Dialler, SessionProtocol, as_reached
from proxy.outbound.given import Given
from proxy.outbound.http.rescue import IDENTITY_REQUIRED, Rescue
from proxy.policy.classify import classify
from proxy.policy.client import PeakEwmaLoad, PenaltyLoad
from proxy.policy.endpoint import HINT_H2, EndpointMeta, Http2Params

_REQUIRE_ID: Final = b"l5d-require-id"
_DST_CANONICAL: Final = b"l5d-dst-canonical"
_PROXY_CONNECTION: Final = b"l5d-proxy-connection"
_OF_PROXIES: Final = (b"l5d-proxy-error", _PROXY_CONNECTION, orig_proto.NAME)
"""What one proxy says to another in a response: never for the app (docs/linkerd/outbound.md, section 9.6)."""


class HttpEndpoint:
    """What both kinds share. `authority` is the backend's name for labels, empty for a forward."""

    __slots__ = (
        "load", "_given", "_rescue", "_flights", "_scope", "_clock", "_context", "_server_id", "_override", "_may_close",
    )  # fmt: skip

    def __init__(self, kind: EndpointKind, addr: Addr, meta: EndpointMeta, labels: tuple[tuple[str, str], ...]) -> None:
        given = kind.given
        self._given = given
        self._rescue = kind.rescue
        self._flights = given.flights
        self._clock = given.reactor.clock
        self.load = PeakEwma(kind.load.default_rtt_s, kind.load.decay_s, self._clock())
        self._scope = HttpMetrics(given.registry).scope((("direction", "outbound"), *labels))
        self._context = f"endpoint {addr}"
        self._server_id = meta.tls.server_id if meta.tls else ""
        self._override = meta.authority_override.encode()
        self._may_close = kind.is_forward and meta.tls is not None
        """The peer's proxy may ask us to close the app's connection (docs/linkerd/outbound.md, section 9.2)."""

    # ---- a request

    def dispatch(self, exchange: Exchange) -> None:
        request = exchange.request
        exchange.context = self._context
        exchange.observer = self
        if exchange.editor is None:
            exchange.editor = self
        self.load.pending += 1
        self._flights.count += 1
        self._scope.requests += 1
        if request.has_l5d and not self._admits(exchange, request):
            return
        if self._override:
            request.rename(self._override)
            request.fields = [one for one in request.fields if one.name != _DST_CANONICAL]
        self.open(exchange, request)

    def start(self, readiness: Any) -> None:
        """Of balance.balancer.Endpoint."""
        raise NotImplementedError

    def open(self, exchange: Exchange, request: RequestHead) -> None:
        """Attach the exchange to a connection."""
        raise NotImplementedError

    def close(self) -> None:
        """Evicted: what runs goes on."""
        raise NotImplementedError

    def _admits(self, exchange: Exchange, request: RequestHead) -> bool:
        """Take out what the app may not say to a peer; False if it was answered, since it asked for another endpoint."""
        required = [one.value.decode("latin-1") for one in request.fields if one.name == _REQUIRE_ID]
        # How a request came is for this proxy to say, not for its app: the peer's would believe it.
        request.fields = [one for one in request.fields if one.name not in (_REQUIRE_ID, orig_proto.NAME)]
        if not required:
            return True
        if all(name == self._server_id for name in required):
            return True
        found = f'"{self._server_id}"' if self._server_id else "none"
        self._rescue.fail(exchange, IDENTITY_REQUIRED, f'required id "{required[0]}"; found {found}')
        return False

    # ---- ResponseEditor, Observer

    def edit_response(self, exchange: Exchange, head: ResponseHead) -> None:
        if head.has_l5d:
            if self._may_close and any(one.name == _PROXY_CONNECTION and one.value == b"close" for one in head.fields):
                exchange.server.close_connection()
            strip(head)

    def response_began(self, exchange: Exchange) -> None:
        now = self._clock()
        latency_s = now - exchange.sent_at
        load = self.load
        load.pending -= 1
        self._flights.count -= 1
        load.observe(latency_s, now)
        response = exchange.response
        if response is not None:
            self._scope.response_began(response.status, latency_s)

    def exchange_ended(self, exchange: Exchange) -> None:
        if not exchange.has_begun:
            now = self._clock()
            self.load.pending -= 1
            self._flights.count -= 1
            self.load.observe(now - exchange.sent_at, now)
        ended = classify(exchange)
        if ended is not None:
            self._scope.ended(*ended)


def strip(head: ResponseHead) -> None:
    """Take out what is said between proxies."""
    head.fields = [one for one in head.fields if one.name not in _OF_PROXIES]


class Http1Endpoint(HttpEndpoint):
    """HTTP/1 connections, each for one authority."""

    __slots__ = ("_dialler", "_pool")

    def __init__(self, kind: EndpointKind, addr: Addr, meta: EndpointMeta) -> None:
        self._dialler = kind.dialler(addr, meta, "http/1")
        super().__init__(kind, addr, meta, self._dialler.labels)
        self._pool = h1_pool(kind.given, self._dialler)

    def start(self, readiness: Any) -> None:
        readiness.became_ready(self)

    def open(self, exchange: Exchange, request: RequestHead) -> None:
        self._pool.open(exchange)

    def close(self) -> None:
        self._pool.close(Reason.SHUTDOWN)


def h1_pool(given: Given, dialler: Dialler) -> H1Pool:
    def dial(pool: Pool) -> Any:
        return dialler.dial(lambda wire: H1Client(wire, pool))

    config = given.config
    idle_timeout_s = config.outbound_http1_connection_pool_idle_timeout_s
    return H1Pool(dial, given.reactor.wheel, idle_timeout_s, config.outbound_max_idle_conns_per_endpoint)


class Http2Endpoint(HttpEndpoint):
    """One pool that is connected ahead; beside it, for HTTP/1 clients, one of HTTP/1 for what must be a tunnel."""

    __slots__ = ("_dialler", "_pool", "_tunnels", "_settings", "_reconnect", "_readiness", "_is_ready")

    def __init__(self, kind: EndpointKind, addr: Addr, meta: EndpointMeta) -> None:
        self._dialler = kind.dialler(addr, meta, "http/2")
        super().__init__(kind, addr, meta, self._dialler.labels)
        faults = kind.given.registry.faults("outbound")
        self._settings = settings_of(kind.given.config, meta.http2)._replace(faults=faults)
        self._pool = Pool(self._dial)
        self._pool.on_empty = self._emptied
        self._tunnels = None if kind.is_http2 else h1_pool(kind.given, kind.dialler(addr, meta, "http/1"))
        reactor = kind.given.reactor
        self._reconnect = Reconnect(reactor.wheel, kind.given.config.outbound_connect_backoff, self._pool.connect)
        self._readiness: Any = None
        self._is_ready = False

    def start(self, readiness: Any) -> None:
        self._readiness = readiness
        self._reconnect.start()

    def open(self, exchange: Exchange, request: RequestHead) -> None:
        if request.version != HTTP_2:
            tunnels = self._tunnels
            if tunnels is not None and request.wants_tunnel:
                tunnels.open(exchange)
                return
            orig_proto.upgrade(request)
        self._pool.open(exchange)

    def close(self) -> None:
        self._readiness = None
        self._reconnect.stop()
        self._pool.close(Reason.SHUTDOWN)
        if self._tunnels is not None:
            self._tunnels.close(Reason.SHUTDOWN)

    def _dial(self, pool: Pool) -> Any:
        settings, wheel = self._settings, self._given.reactor.wheel
        return self._dialler.dial(lambda wire: H2Client(wire, pool, settings, wheel), self._connected)

    def _connected(self) -> None:
        self._reconnect.succeeded()
        if not self._is_ready and self._readiness is not None:
            self._is_ready = True
            self._readiness.became_ready(self)

    def _emptied(self) -> None:
        if self._is_ready:
            self._is_ready = False
            if self._readiness is not None:
                self._readiness.became_pending(self)
        self._reconnect.lost()


def settings_of(config: Config, params: Http2Params) -> H2Settings:
    """The configuration's, overridden by what discovery says of the endpoint (docs/linkerd/outbound.md, section 9.3).

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
    """What the endpoints of one backend have in common: made with the backend, asked for each address."""

    __slots__ = ("given", "rescue", "is_http2", "is_forward", "load", "_authority")

    def __init__(
        self, given: Given, rescue: Rescue, is_http2: bool, load: PeakEwmaLoad | PenaltyLoad, authority: str | None
    ) -> None:
        """`authority` is the backend's name; None for a forward, which has no other than its address."""
        self.given: Final = given
        self.rescue: Final = rescue
        self.is_http2: Final = is_http2
        """The clients speak HTTP/2; else HTTP/1, which an endpoint may still be sent inside HTTP/2."""
        self.load: Final = load
        self.is_forward: Final = authority is None
        self._authority = authority or ""

    def dialler(self, addr: Addr, meta: EndpointMeta, session: SessionProtocol) -> Dialler:
        return Dialler(self.given, addr, meta, self._authority, session)

    def make(self, addr: Addr, meta: EndpointMeta) -> HttpEndpoint:
        meta = as_reached(self.given, addr, meta)
        if self.is_http2 or meta.hint == HINT_H2:
            return Http2Endpoint(self, addr, meta)
        return Http1Endpoint(self, addr, meta)
