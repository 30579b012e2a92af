"""Opaque connections of one destination: the bytes of the app to an endpoint and back (docs/linkerd/outbound.md, sections 4.3 and 10).

Every failure just ends the connection, counted by its reason. While a
connection waits for an endpoint at most one read of it is held; the endpoint
that it gets is its for good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from random import random
from typing import Any, Final, Protocol

from proxy.balance.balancer import Balancer
from proxy.balance.ewma import PeakEwma
from proxy.core.addr import Addr
from proxy.core.codec import Codec, Wire
from proxy.core.reason import Reason
from proxy.core.watch import Absent
from proxy.outbound.connect import Dialler, as_reached
from proxy.outbound.discover import Destination
from proxy.outbound.given import Given
from proxy.outbound.logical import draw
from proxy.policy.client import (
    OPAQUE,
    RANDOM_AVAILABLE,
    TLS,
    Backend,
    Balance,
    ClientPolicy,
    Distribution,
    Fail,
    Forward,
    PeakEwmaLoad,
    PenaltyLoad,
    RouteBackend,
    StreamRoute,
)
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.match import best_host
from proxy.transport.relay import Relay, RelayEnd

_log: Final = logging.getLogger(__name__)

CountError = Callable[[str], None]


class Connecting:
    """A connection to an endpoint while it is made: it weighs on the endpoint until it is made, refused or given up."""

    __slots__ = ("_load", "_clock", "_begun_at", "_failure_rtt_s", "_is_over")

    def __init__(self, load: PeakEwma, clock: Callable[[], float], failure_rtt_s: float) -> None:
        self._load = load
        self._clock = clock
        self._begun_at = clock()
        self._failure_rtt_s = failure_rtt_s
        self._is_over = False
        load.pending += 1

    def made(self) -> None:
        self._end(0.0)

    def failed(self) -> None:
        """A port that refuses at once must not look like a fast one: it is taken for what an unknown endpoint is taken for."""
        self._end(self._failure_rtt_s)

    def given_up(self) -> None:
        """By the app, which says nothing about the endpoint; or it was made long ago."""
        if not self._is_over:
            self._is_over = True
            self._load.pending -= 1

    def _end(self, at_least_s: float) -> None:
        if not self._is_over:
            self.given_up()
            now = self._clock()
            self._load.observe(max(now - self._begun_at, at_least_s), now)


class Tunnel:
    """One connection of the app, from the moment it is known to be opaque. A Codec until it has a relay's."""

    __slots__ = ("_relay", "_on_error", "_on_waiting_lost", "_connecting", "sni")

    def __init__(self, wire: Wire, on_error: CountError, sni: str = "") -> None:
        self._on_error = on_error
        self._relay = Relay(wire, self._ended)
        self._on_waiting_lost: Callable[[Tunnel], None] | None = None
        self._connecting: Connecting | None = None
        self.sni = sni

    @property
    def codec(self) -> Codec:
        """For the wire to be handed to."""
        return self._relay.accepted

    def begin_wait(self, on_lost: Callable[[Tunnel], None]) -> None:
        """`on_lost` is told if the app gives up before it gets an endpoint."""
        self._on_waiting_lost = on_lost

    def connect(self, dialler: Dialler, connecting: Connecting) -> None:
        self._on_waiting_lost = None
        self._connecting = connecting
        dialler.dial(self._relay.dial, connecting.made)

    def refuse(self, label: str, text: str) -> None:
        """End it: `label` for outbound_tcp_errors_total, `text` for the log."""
        self._on_waiting_lost = None
        self._on_error(label)
        _log.info("Connection closed: %s", text)
        self._relay.refuse(Reason.CANCELLED)

    def _ended(self, end: RelayEnd) -> None:
        on_lost, connecting = self._on_waiting_lost, self._connecting
        if on_lost is not None:
            self._on_waiting_lost = None
            on_lost(self)
        elif end.reason in (Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT):
            self._on_error("i/o")
            if connecting is not None:
                connecting.failed()
        if connecting is not None:
            connecting.given_up()


class OpaqueBackend(Protocol):
    @property
    def is_ready(self) -> bool: ...

    def take(self, tunnel: Tunnel, context: str) -> None: ...

    def close(self) -> None: ...


class OpaqueEndpoint:
    """One address: always ready; its load is how long a connection took to be made."""

    __slots__ = ("load", "dialler", "_clock", "_default_rtt_s")

    def __init__(
        self, given: Given, addr: Addr, meta: EndpointMeta, load: PeakEwmaLoad | PenaltyLoad, authority: str
    ) -> None:
        self._clock = given.reactor.clock
        self._default_rtt_s = load.default_rtt_s
        self.load = PeakEwma(load.default_rtt_s, load.decay_s, self._clock())
        self.dialler = Dialler(given, addr, meta, authority, "")

    def start(self, readiness: Any) -> None:
        readiness.became_ready(self)

    def close(self) -> None:
        """Its connections are the app's: they end when the app or the peer ends them."""

    def connect(self, tunnel: Tunnel) -> None:
        tunnel.connect(self.dialler, Connecting(self.load, self._clock, self._default_rtt_s))


class OpaqueBalanced:
    __slots__ = ("_balancer", "_name", "_clock")

    def __init__(self, given: Given, destination: Destination, balance: Balance, name: str) -> None:
        def make(addr: Addr, meta: EndpointMeta) -> OpaqueEndpoint:
            return OpaqueEndpoint(given, addr, as_reached(given, addr, meta), balance.load, balance.path)

        self._balancer: Balancer[OpaqueEndpoint, EndpointMeta] = Balancer(
            self, destination.endpoints(balance.path), make, given.reactor, given.tcp_line
        )
        self._name = name
        self._clock = given.reactor.clock

    @property
    def is_ready(self) -> bool:
        return self._balancer.is_ready

    def take(self, tunnel: Tunnel, context: str) -> None:
        balancer = self._balancer
        endpoint = balancer.p2c.pick(self._clock())
        if endpoint is not None:
            endpoint.connect(tunnel)
        elif balancer.error:
            self.fail_waiter(tunnel)
        elif balancer.waiting.is_ready:
            tunnel.begin_wait(balancer.waiting.leave)
            balancer.waiting.join(tunnel)
        else:
            tunnel.refuse("loadshed", f"{context}: service unavailable")

    def close(self) -> None:
        self._balancer.close()

    # ---- the balancer's line

    def dispatch_to(self, endpoint: OpaqueEndpoint, waiter: Tunnel) -> None:
        endpoint.connect(waiter)

    def fail_waiter(self, waiter: Tunnel) -> None:
        error = self._balancer.error
        if error:
            waiter.refuse("unexpected", f"{self._name}: pool failed: {error}")
        else:
            waiter.refuse("failfast", f"{self._name}: service in fail-fast")


class OpaqueForward:
    """One address without a line, never taken for a local one (docs/linkerd/outbound.md, section 9.1)."""

    __slots__ = ("_endpoint",)

    def __init__(self, given: Given, forward: Forward) -> None:
        self._endpoint = OpaqueEndpoint(given, forward.addr, forward.endpoint, PeakEwmaLoad(), "")

    @property
    def is_ready(self) -> bool:
        return True

    def take(self, tunnel: Tunnel, context: str) -> None:
        self._endpoint.connect(tunnel)

    def close(self) -> None:
        self._endpoint.close()


class OpaqueFailing:
    __slots__ = ("_text",)

    def __init__(self, fail: Fail) -> None:
        self._text = fail.text

    @property
    def is_ready(self) -> bool:
        return True

    def take(self, tunnel: Tunnel, context: str) -> None:
        tunnel.refuse("unexpected", f"{context}: {self._text}")

    def close(self) -> None:
        """Nothing is held."""


class OpaqueRouter:
    """Of one destination: its opaque routes, or its TLS routes chosen by SNI."""

    __slots__ = ("_given", "_destination", "_is_tls", "_backends", "_routes", "_context")

    def __init__(self, given: Given, destination: Destination, is_tls: bool) -> None:
        self._given = given
        self._destination = destination
        self._is_tls = is_tls
        self._context = f"logical service {destination.logical}"
        self._backends: dict[Backend, OpaqueBackend] = {}
        self._routes: tuple[StreamRoute, ...] = ()
        self._apply(destination.effective.value)
        destination.effective.subscribe(self._apply)

    def open(self, tunnel: Tunnel) -> None:
        """Connect it to an endpoint of the route that it takes, now or when one is ready, or refuse it."""
        route = self._route(tunnel.sni)
        if route is None:
            tunnel.refuse("unexpected", f"{self._context}: no route")
            return
        context = f"{self._context}: route {route.meta}"
        if route.refusal:
            tunnel.refuse("unexpected", f"{context}: {route.refusal_text or route.refusal}")
            return
        for one in in_order(route.distribution):
            backend = self._backends[one.backend]
            if backend.is_ready:
                backend.take(tunnel, context)
                return
        tunnel.refuse("loadshed", f"{context}: service unavailable")

    def close(self) -> None:
        self._destination.effective.unsubscribe(self._apply)
        for backend in self._backends.values():
            backend.close()

    def _route(self, sni: str) -> StreamRoute | None:
        if not self._is_tls:
            return self._routes[0] if self._routes else None
        return route_of_sni(self._routes, sni)

    def _apply(self, policy: ClientPolicy | Absent | None) -> None:
        if not isinstance(policy, ClientPolicy) or (policy.protocol == TLS) != self._is_tls:
            return
        routes = policy.tls_routes if self._is_tls else policy.opaque_routes
        if not routes and policy.protocol != OPAQUE:
            routes = _opaque_of(policy)
        old: dict[Backend, OpaqueBackend | None] = dict(self._backends)
        self._routes = routes
        self._backends = {}
        for route in routes:
            for one in route.distribution.backends:
                if one.backend not in self._backends:
                    kept = old.pop(one.backend, None)
                    self._backends[one.backend] = kept if kept is not None else self._make(one.backend)
        for backend in old.values():
            if backend is not None:
                backend.close()

    def _make(self, backend: Backend) -> OpaqueBackend:
        dispatch = backend.dispatch
        if isinstance(dispatch, Balance):
            return OpaqueBalanced(self._given, self._destination, dispatch, str(backend.meta))
        if isinstance(dispatch, Forward):
            return OpaqueForward(self._given, dispatch)
        return OpaqueFailing(dispatch)


def in_order(distribution: Distribution) -> Iterator[RouteBackend]:
    """Its backends in the order in which they are to be tried: as they stand, or drawn by weight."""
    left = list(distribution.eligible())
    if distribution.kind != RANDOM_AVAILABLE or not any(one.weight for one in left):
        yield from left
        return
    while left:
        weights = [one.weight for one in left]
        yield left.pop(draw(weights, sum(weights), random()))


def _opaque_of(policy: ClientPolicy) -> tuple[StreamRoute, ...]:
    """A policy that knows HTTP only, for a destination whose profile says opaque: the backends of its first rule."""
    for route in policy.http1_routes or policy.http2_routes:
        for rule in route.rules:
            return (StreamRoute(route.meta, rule.distribution),)
    return ()


def route_of_sni(routes: Sequence[StreamRoute], sni: str) -> StreamRoute | None:
    """The best of the TLS routes; among equals the earliest (docs/linkerd/outbound.md, section 7.3)."""
    best: StreamRoute | None = None
    best_score: tuple[int, ...] = ()
    for route in routes:
        score = best_host(route.snis, sni.lower()) if route.snis else (0, 0)
        if score is not None and (best is None or score > best_score):
            best, best_score = route, score
    return best
