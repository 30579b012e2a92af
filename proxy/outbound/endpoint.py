"""HTTP endpoints: one address of a backend, the connections to it, its load and its numbers (reference: outbound, section 9).

Law: built when discovery names it, closed when discovery takes it away; a
request that runs keeps its stream. The endpoint is the observer of its
exchanges: it lets go of their load and counts how they ended. An HTTP/1
endpoint is always ready, a dead one answers 502; an HTTP/2 endpoint is ready
only while a connection stands.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from proxy.balance.ewma import PeakEwma
from proxy.balance.reconnect import Reconnect
from proxy.core.addr import Addr
from proxy.core.codec import Wire
from proxy.core.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h2.client import H2Client
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.pool import Pool
from proxy.metrics.http import HttpMetrics
from proxy.outbound.connect import Dialler, SessionProtocol, as_reached
from proxy.outbound.given import Given
from proxy.outbound.rescue import IDENTITY_REQUIRED, Rescue
from proxy.policy.classify import classify
from proxy.policy.client import PeakEwmaLoad, PenaltyLoad
from proxy.policy.endpoint import HINT_H2, EndpointMeta

_REQUIRE_ID: Final = b"l5d-require-id"
_DST_CANONICAL: Final = b"l5d-dst-canonical"
_OF_PROXIES: Final = (b"l5d-proxy-error", b"l5d-proxy-connection")
"""What one proxy says to another in a response: never for the app (reference: outbound, section 9.6)."""


class HttpEndpoint:
    """What both kinds share. `authority` is the backend's name for labels, empty for a forward."""

    __slots__ = ("load", "_given", "_rescue", "_scope", "_clock", "_context", "_server_id", "_override")

    def __init__(self, kind: EndpointKind, addr: Addr, meta: EndpointMeta, labels: tuple[tuple[str, str], ...]) -> None:
        given = kind.given
        self._given = given
        self._rescue = kind.rescue
        self._clock = given.reactor.clock
        self.load = PeakEwma(kind.load.default_rtt_s, kind.load.decay_s, self._clock())
        self._scope = HttpMetrics(given.registry).scope((("direction", "outbound"), *labels))
        self._context = f"endpoint {addr}"
        self._server_id = meta.tls.server_id if meta.tls else ""
        self._override = meta.authority_override.encode()

    # ---- a request

    def dispatch(self, exchange: Exchange) -> None:
        request = exchange.request
        exchange.context = self._context
        exchange.observer = self
        if exchange.editor is None:
            exchange.editor = self
        self.load.pending += 1
        self._scope.request()
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
        required = [one.value.decode("latin-1") for one in request.fields if one.name == _REQUIRE_ID]
        if not required:
            return True
        request.fields = [one for one in request.fields if one.name != _REQUIRE_ID]
        if all(name == self._server_id for name in required):
            return True
        found = f'Some(ServerId(Dns(Name("{self._server_id}"))))' if self._server_id else "None"
        self._rescue.fail(exchange, IDENTITY_REQUIRED, f'required id "{required[0]}"; found {found}')
        return False

    # ---- ResponseEditor, Observer

    def edit_response(self, exchange: Exchange, head: ResponseHead) -> None:
        if head.has_l5d:
            strip(head)

    def response_began(self, exchange: Exchange) -> None:
        now = self._clock()
        latency_s = now - exchange.sent_at
        load = self.load
        load.pending -= 1
        load.observe(latency_s, now)
        response = exchange.response
        if response is not None:
            self._scope.response_began(response.status, latency_s)

    def exchange_ended(self, exchange: Exchange) -> None:
        if not exchange.has_begun:
            now = self._clock()
            self.load.pending -= 1
            self.load.observe(now - exchange.sent_at, now)
        ended = classify(exchange)
        if ended is not None:
            self._scope.ended(*ended)


def strip(head: ResponseHead) -> None:
    """Take out what is said between proxies."""
    head.fields = [one for one in head.fields if one.name not in _OF_PROXIES]


class Http1Endpoint(HttpEndpoint):
    """A pool for each authority and each form of target, so that different hosts never share a connection."""

    __slots__ = ("_dialler", "_pools", "_absolute_pools")

    def __init__(self, kind: EndpointKind, addr: Addr, meta: EndpointMeta) -> None:
        self._dialler = kind.dialler(addr, meta, "http/1")
        super().__init__(kind, addr, meta, self._dialler.labels)
        self._pools: dict[bytes, Pool] = {}
        self._absolute_pools: dict[bytes, Pool] = {}

    def start(self, readiness: Any) -> None:
        readiness.became_ready(self)

    def open(self, exchange: Exchange, request: RequestHead) -> None:
        if request.is_lonely:
            once = Pool(self._dial)
            once.open(exchange)
            once.close(Reason.COMPLETE)
            return
        pools = self._absolute_pools if request.is_absolute else self._pools
        pool = pools.get(request.authority)
        if pool is None:
            pool = pools[request.authority] = Pool(self._dial)
            pool.on_empty = partial(self._forget, pools, request.authority)
        pool.open(exchange)

    def close(self) -> None:
        for pools in (self._pools, self._absolute_pools):
            for pool in list(pools.values()):
                pool.close(Reason.SHUTDOWN)

    def _forget(self, pools: dict[bytes, Pool], authority: bytes) -> None:
        pools.pop(authority, None)

    def _dial(self, pool: Pool) -> Any:
        def make_codec(wire: Wire) -> H1Client:
            return H1Client(wire, pool)

        return self._dialler.dial(make_codec)


class Http2Endpoint(HttpEndpoint):
    """One pool that is connected ahead; beside it, for HTTP/1 clients, one of HTTP/1 for what must be a tunnel."""

    __slots__ = ("_dialler", "_pool", "_tunnels", "_reconnect", "_readiness", "_is_ready")

    def __init__(self, kind: EndpointKind, addr: Addr, meta: EndpointMeta) -> None:
        self._dialler = kind.dialler(addr, meta, "http/2")
        super().__init__(kind, addr, meta, self._dialler.labels)
        self._pool = Pool(self._dial)
        self._pool.on_empty = self._emptied
        self._tunnels = None if kind.is_http2 else Http1Endpoint(kind, addr, meta)
        reactor = kind.given.reactor
        self._reconnect = Reconnect(reactor.wheel, kind.given.config.outbound_connect_backoff, self._pool.connect)
        self._readiness: Any = None
        self._is_ready = False

    def start(self, readiness: Any) -> None:
        self._readiness = readiness
        self._reconnect.start()

    def open(self, exchange: Exchange, request: RequestHead) -> None:
        tunnels = self._tunnels
        if tunnels is not None and request.wants_tunnel:
            tunnels.open(exchange, request)
        else:
            self._pool.open(exchange)

    def close(self) -> None:
        self._readiness = None
        self._reconnect.stop()
        self._pool.close(Reason.SHUTDOWN)
        if self._tunnels is not None:
            self._tunnels.close()

    def _dial(self, pool: Pool) -> Any:
        def make_codec(wire: Wire) -> H2Client:
            return H2Client(wire, pool)

        return self._dialler.dial(make_codec, self._connected)

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


class EndpointKind:
    """What the endpoints of one backend have in common: made with the backend, asked for each address."""

    __slots__ = ("given", "rescue", "is_http2", "load", "_authority")

    def __init__(
        self, given: Given, rescue: Rescue, is_http2: bool, load: PeakEwmaLoad | PenaltyLoad, authority: str
    ) -> None:
        self.given: Final = given
        self.rescue: Final = rescue
        self.is_http2: Final = is_http2
        """The clients speak HTTP/2; else HTTP/1, which an endpoint may still be sent inside HTTP/2."""
        self.load: Final = load
        self._authority = authority

    def dialler(self, addr: Addr, meta: EndpointMeta, session: SessionProtocol) -> Dialler:
        return Dialler(self.given, addr, meta, self._authority, session)

    def make(self, addr: Addr, meta: EndpointMeta) -> HttpEndpoint:
        meta = as_reached(self.given, addr, meta)
        if self.is_http2 or meta.hint == HINT_H2:
            return Http2Endpoint(self, addr, meta)
        return Http1Endpoint(self, addr, meta)
