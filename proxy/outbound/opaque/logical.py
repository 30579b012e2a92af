"""Opaque routing of one destination: its only route, or the TLS route of a server name (docs/linkerd/outbound.md, section 7.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import random

from proxy.core.watch import Absent
from proxy.outbound.discover import Destination
from proxy.outbound.given import Given
from proxy.outbound.http.logical import draw
from proxy.outbound.opaque.concrete import OpaqueBackend, concrete
from proxy.outbound.opaque.tunnel import Tunnel
from proxy.policy.client import (
    OPAQUE,
    RANDOM_AVAILABLE,
    TLS,
    Backend,
    ClientPolicy,
    Distribution,
    RouteBackend,
    StreamRoute,
)
from proxy.policy.match import best_host


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
                    self._backends[one.backend] = (
                        kept if kept is not None else concrete(one.backend, self._given, self._destination)
                    )
        for backend in old.values():
            if backend is not None:
                backend.close()


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
