"""Opaque routing of one destination: its only route, or the TLS route of a server name (docs/linkerd/outbound.md, section 7.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from proxy.core import limits
from proxy.core.address.addr import Addr, port_number
from proxy.outbound.backend.split import service_meta, split_of
from proxy.outbound.discovery.discover import Destination
from proxy.outbound.opaque.concrete import OpaqueBackend, concrete
from proxy.outbound.opaque.numbers import OpaqueRouteNumbers, TlsRouteNumbers
from proxy.outbound.opaque.tunnel import Tunnel
from proxy.outbound.runtime import Runtime
from proxy.policy.client import OPAQUE, TLS, Backend, ClientPolicy, RouteBackend, StreamRoute
from proxy.policy.distribution import Chooser, Unmade, compile_distribution
from proxy.policy.meta import Meta, default_meta
from proxy.policy.profiles.profile import Profile
from proxy.policy.routes.match import HostMatcher, Score

_BY_PROFILE: Final = default_meta("serviceprofile")
_ANY_NAME: Final[Score] = (0, 0)

RouteNumbers = OpaqueRouteNumbers | TlsRouteNumbers


class Way(NamedTuple):
    """What the connections of a route need: made in shares, because a policy may have thousands of routes."""

    chooser: Chooser[OpaqueBackend]
    numbers: RouteNumbers


class Route:
    """How well a server name fits a route, and where its connections go."""

    __slots__ = ("context", "refusal", "refusal_text", "_names", "_given", "_make", "_way")

    def __init__(self, route: StreamRoute, router: str, make: Callable[[StreamRoute], Way]) -> None:
        self.context: Final = f"{router}: route {route.meta}"
        self.refusal: Final = route.refusal
        """Why every connection is closed; empty if connections are served."""
        self.refusal_text: Final = route.refusal_text or route.refusal
        self._names: Final = [HostMatcher(one) for one in route.snis]
        self._given: Final = route
        self._make: Final = make
        self._way: Way | None = None

    def way(self) -> Way:
        """Made when it is first asked for: by a connection, or in its turn."""
        found = self._way
        if found is None:
            found = self._way = self._make(self._given)
        return found

    def score(self, sni: str) -> Score | None:
        """None if the name, in lower case, does not fit."""
        if not self._names:
            return _ANY_NAME
        scores = [one.score for one in self._names if one.fits(sni)]
        return max(scores) if scores else None


class OpaqueRouter:
    """Routes the connections of one destination, by its opaque routes or by its TLS routes and the SNI."""

    __slots__ = (
        "_runtime",
        "_destination",
        "_is_tls",
        "_backends",
        "_former",
        "_unmade",
        "_is_due",
        "_routes",
        "_next",
        "_context",
    )

    def __init__(self, runtime: Runtime, destination: Destination, is_tls: bool) -> None:
        self._runtime = runtime
        self._destination = destination
        self._is_tls = is_tls
        self._context = f"logical service {destination.logical}"
        self._backends: dict[Backend, OpaqueBackend] = {}
        self._former: dict[Backend, OpaqueBackend] = {}
        """Backends of earlier routes that none of the present ones has asked for yet."""
        self._unmade = Unmade()
        self._is_due = False
        """Whether the step queue will call `step`."""
        self._routes: list[Route] = []
        self._next = 0
        """The ways of all routes before this place are made."""
        self._apply(None)
        destination.effective.subscribe(self._apply)
        destination.profile.subscribe(self._apply)

    def open(self, tunnel: Tunnel) -> None:
        """Connect it to an endpoint of the route that it takes, now or when one is ready, or refuse it."""
        route = self._route(tunnel.sni)
        if route is None:
            tunnel.refuse("unexpected", f"{self._context}: no route")
            return
        way = route.way()
        tunnel.take_route(way.numbers.of(tunnel.sni))
        if route.refusal:
            tunnel.refuse("unexpected", f"{route.context}: {route.refusal_text}", route.refusal)
            return
        backend = way.chooser.choose()
        if backend is None:
            tunnel.refuse("loadshed", f"{route.context}: service unavailable")
        else:
            backend.take(tunnel, route.context)

    def close(self) -> None:
        self._destination.effective.unsubscribe(self._apply)
        self._destination.profile.unsubscribe(self._apply)
        self._begin_anew()
        self._next = len(self._routes)
        self._build()

    def step(self) -> None:
        """The step queue calls this."""
        self._is_due = False
        self._build()

    def _route(self, sni: str) -> Route | None:
        if not self._is_tls:
            return self._routes[0] if self._routes else None
        return route_of_sni(self._routes, sni)

    def _apply(self, _changed: object) -> None:
        """A profile with overrides takes precedence over the policy's opaque routes, but not over those of TLS."""
        profile, policy = self._destination.profile.value, self._destination.effective.value
        if isinstance(profile, Profile) and profile.routes_opaque and not self._is_tls:
            self._use(service_meta(profile.name), (StreamRoute(_BY_PROFILE, split_of(profile)),))
        elif isinstance(policy, ClientPolicy) and (policy.protocol == TLS) == self._is_tls:
            routes = policy.tls_routes if self._is_tls else policy.opaque_routes
            if not routes and policy.protocol != OPAQUE:
                routes = _opaque_of(policy)
            self._use(policy.meta, routes)

    def _use(self, parent: Meta, routes: Sequence[StreamRoute]) -> None:
        """Use these routes; backends that they still name are kept."""
        self._begin_anew()

        def kept_or_made(one: RouteBackend) -> OpaqueBackend:
            found = self._backends.get(one.backend) or self._former.pop(one.backend, None)
            if found is None:
                found = concrete(one.backend, self._runtime, self._destination, parent, self._is_tls)
            self._backends[one.backend] = found
            return found

        def way_of(route: StreamRoute) -> Way:
            chooser = compile_distribution(route.distribution, kept_or_made)
            self._unmade.add(chooser)
            return Way(chooser, self._route_numbers(parent, route))

        self._routes = [Route(route, self._context, way_of) for route in routes]
        self._next = 0
        self._build()

    def _begin_anew(self) -> None:
        """Backends that are there already are kept until it is clear that no route uses them."""
        self._unmade.abandon()
        self._former.update(self._backends)
        self._backends = {}

    def _build(self) -> None:
        """Make one share of the routes' ways and backends, or close one share of the backends that no route uses."""
        left = limits.TURN_PARTS
        while left > 0 and self._next < len(self._routes):
            left -= max(1, len(self._routes[self._next].way().chooser.backends))
            self._next += 1
        left -= self._unmade.build(left)
        while left > 0 and self._former:
            left -= 1
            self._former.popitem()[1].close()
        if left <= 0 and not self._is_due:
            self._is_due = True
            self._runtime.reactor.steps.add(self)

    def _route_numbers(self, parent: Meta, route: StreamRoute) -> RouteNumbers:
        runtime = self._runtime
        if self._is_tls:
            names_hosts = runtime.config.outbound_metrics_hostname_labels
            return TlsRouteNumbers(runtime.registry, parent, route.meta, names_hosts)
        return OpaqueRouteNumbers(runtime.registry, parent, route.meta, logical_target(self._destination))


def logical_target(destination: Destination) -> tuple[str, int]:
    """The IP address, empty for a name, and the port that opaque connections are labelled with: their profile's name, if it
    has one, stands for where they wanted to go (docs/linkerd/outbound.md, section 4.3)."""
    profile = destination.profile.value
    target = profile.name if isinstance(profile, Profile) and profile.name else destination.target
    if isinstance(target, Addr):
        return target.ip, target.port
    return "", port_number(target.rpartition(":")[2]) or 0


def _opaque_of(policy: ClientPolicy) -> tuple[StreamRoute, ...]:
    """A policy that knows HTTP only, for a destination whose profile says opaque: the backends of its first rule."""
    for route in policy.http1_routes or policy.http2_routes:
        for rule in route.rules:
            return (StreamRoute(route.meta, rule.distribution),)
    return ()


def route_of_sni(routes: Sequence[Route], sni: str) -> Route | None:
    """The best of the TLS routes; among equals the earliest (docs/linkerd/outbound.md, section 7.3)."""
    sni = sni.lower()
    best: Route | None = None
    best_score: Score = ()
    for route in routes:
        score = route.score(sni)
        if score is not None and (best is None or score > best_score):
            best, best_score = route, score
    return best
