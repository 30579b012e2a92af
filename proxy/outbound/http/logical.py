"""HTTP routing of one destination: route, filters, distribution (docs/linkerd/outbound.md, sections 7 and 8).

Stages are built when a policy arrives and only called when a request does. A
policy may have thousands of rules: those beyond one turn's share are built in
later turns, or by the first request that takes them. Backends that the next
policy still names are kept. A running exchange keeps the stages that it began
with, and knows the route and the backend that it took. The head goes from stage
to stage beside the exchange: a filter makes another one, and the attempt begins
with the last.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.loop.effort import effort_of
from proxy.http.exchange import Exchange
from proxy.outbound.backend.split import service_meta
from proxy.outbound.discovery.discover import GATEWAY, Destination
from proxy.outbound.http.concrete import Concrete, Terms, concrete
from proxy.outbound.http.filters import FilteredResponse
from proxy.outbound.http.numbers import RouteNumbers, RouteOf
from proxy.outbound.http.profile.routes import ProfileRoutes
from proxy.outbound.http.rescue import LOAD_SHED, NO_ROUTE, Rescue
from proxy.outbound.http.retry.stage import with_tries
from proxy.outbound.http.rule import Distributing, Filtered, FilteredBackend, Named, NamedRoute, RuleBackend, RuleStage
from proxy.outbound.runtime import Runtime
from proxy.policy.client import (
    GRPC,
    HTTP_1,
    HTTP_2,
    OPAQUE,
    TLS,
    Backend,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    FailureAccrual,
    RouteBackend,
)
from proxy.policy.distribution import FIRST, Unmade, compile_distribution
from proxy.policy.meta import default_meta
from proxy.policy.profiles.profile import Profile
from proxy.policy.routes.filter import ResponseFilter, compile_filters, response_chain
from proxy.policy.routes.redirect import Match
from proxy.policy.routes.table import RouteTable, table_of


class HttpRouter:
    """The Stage for one destination and one version of HTTP."""

    __slots__ = (
        "_runtime", "_rescue", "_in_flight", "_destination", "_is_http2", "_place", "_backends", "_former", "_table", "_policy",
        "_routes", "_places", "_stages", "_next", "_unmade", "_is_due", "_only", "_only_numbers", "_only_match", "_terms",
    )  # fmt: skip

    def __init__(self, runtime: Runtime, rescue: Rescue, destination: Destination, is_http2: bool) -> None:
        self._runtime = runtime
        self._rescue = rescue
        self._in_flight = runtime.in_flight
        self._destination = destination
        self._is_http2 = is_http2
        self._place: Final = Named(f"logical service {destination.logical}")
        self._backends: dict[Backend, Concrete] = {}
        self._former: dict[Backend, Concrete] = {}
        """Backends of earlier policies that no stage of this one has asked for yet."""
        self._table = table_of(())
        self._policy: ClientPolicy | None = None
        self._routes: tuple[ClientRoute, ...] = ()
        """The routes whose stages are wanted."""
        self._places: list[NamedRoute | None] = []
        """Each route with its numbers; None if it is not built yet, as are the stages of its rules."""
        self._stages: list[list[RuleStage | None]] = []
        self._next = (0, 0)
        """The route and the rule that are built next, unless a request has had them built."""
        self._unmade = Unmade()
        """The distributions, each of many backends, that are not made to their ends yet."""
        self._is_due = False
        """Whether the step queue will call `step`."""
        self._only: RuleStage | None = None
        """The stage of all requests, if the policy routes all of them alike."""
        self._only_numbers: RouteNumbers | None = None
        """None if a profile routes, because its routes have numbers of their own."""
        self._only_match: Match = None
        self._terms = Terms(default_meta("http"))
        self._apply(None)
        destination.effective.subscribe(self._apply)
        destination.profile.subscribe(self._apply)

    def dispatch(self, exchange: Exchange) -> None:
        exchange.rescue = self._rescue
        in_flight = self._in_flight
        if in_flight.count >= in_flight.most:
            self._rescue.fail(exchange, LOAD_SHED, "service unavailable")
            return
        only = self._only
        if only is not None:
            numbers = self._only_numbers
            if numbers is not None:
                numbers.begin(exchange)
            only.route(exchange, exchange.request, self._only_match)
            return
        found = self._table.find(exchange.request, effort_of(exchange))
        if found is None:
            exchange.route = self._place
            self._rescue.fail(exchange, NO_ROUTE, "no route")
        else:
            stage = self._stages[found.route][found.rule] or self._stage(found.route, found.rule)
            self._place_of(found.route).numbers.begin(exchange)
            stage.route(exchange, exchange.request, found.match)

    def close(self) -> None:
        self._destination.effective.unsubscribe(self._apply)
        self._destination.profile.unsubscribe(self._apply)
        self._former.update(self._backends)
        self._backends = {}
        self._unmade.abandon()
        self._next = (len(self._routes), 0)
        self._build()

    # ---- building

    def _apply(self, _changed: object) -> None:
        """Use the profile if it routes, or if this is a gateway; otherwise the policy, with the same backends as before."""
        profile, policy = self._destination.profile.value, self._destination.effective.value
        is_gateway = self._destination.kind == GATEWAY
        if isinstance(profile, Profile) and (profile.routes_http or (is_gateway and profile.name)):
            self._want(())
            self._terms = Terms(service_meta(profile.name))
            routes = ProfileRoutes(profile, self._destination, self._runtime, self._rescue, self._concrete)
            self._unmade.add(routes.chooser)
            self._only = routes
            self._only_numbers = self._only_match = None
            self._build()
        elif isinstance(policy, ClientPolicy) and policy.protocol not in (OPAQUE, TLS):
            self._apply_policy(policy)
        # otherwise what this router was built for stays (docs/linkerd/outbound.md, section 4.3)

    def _apply_policy(self, policy: ClientPolicy) -> None:
        self._want(self._routes_of(policy))
        self._policy = policy
        self._terms = Terms(policy.meta, self._accrual(policy))
        self._table = self._table_of(policy)
        only = self._table.only
        self._only = self._stage(0, 0) if only is not None else None
        self._only_numbers = self._place_of(0).numbers if only is not None else None
        self._only_match = only.match if only is not None else None
        self._build()

    def _want(self, routes: tuple[ClientRoute, ...]) -> None:
        """Begin anew, with these routes. Backends that are there already are kept until it is clear that none uses them."""
        self._former.update(self._backends)
        self._backends = {}
        self._unmade.abandon()
        self._routes = routes
        self._places = [None] * len(routes)
        self._stages = [[None] * len(route.rules) for route in routes]
        self._next = (0, 0)

    def step(self) -> None:
        """The step queue calls this."""
        self._is_due = False
        self._build()

    def _build(self) -> None:
        """Build one share of the stages, or close one share of the backends that none of them uses."""
        left = limits.TURN_PARTS
        route, rule = self._next
        while left > 0 and route < len(self._routes):
            if rule < len(self._routes[route].rules):
                left -= max(1, len(self._routes[route].rules[rule].distribution.backends[:FIRST]))
                self._stage(route, rule)
                rule += 1
            if rule >= len(self._routes[route].rules):
                self._place_of(route)
                left -= 0 if rule else 1  # it has no rules
                route, rule = route + 1, 0
        self._next = (route, rule)
        left -= self._unmade.build(left)
        while left > 0 and self._former:
            left -= 1
            self._former.popitem()[1].close()
        if left <= 0 and not self._is_due:
            self._is_due = True
            self._runtime.reactor.steps.add(self)

    def _stage(self, route: int, rule: int) -> RuleStage:
        """The stage of this rule, which is built if it is not there yet."""
        found = self._stages[route][rule]
        if found is None:
            found = self._stages[route][rule] = self._rule(self._place_of(route), self._routes[route].rules[rule])
        return found

    def _place_of(self, route: int) -> NamedRoute:
        found = self._places[route]
        if found is None:
            policy = self._policy
            assert policy is not None
            found = self._places[route] = self._named(policy, self._routes[route])
        return found

    def _routes_of(self, policy: ClientPolicy) -> tuple[ClientRoute, ...]:
        if policy.protocol == HTTP_1:
            return policy.http1_routes
        if policy.protocol in (HTTP_2, GRPC):
            return policy.http2_routes
        return policy.http2_routes if self._is_http2 else policy.http1_routes

    def _table_of(self, policy: ClientPolicy) -> RouteTable:
        is_http2 = policy.protocol in (HTTP_2, GRPC) or (policy.protocol != HTTP_1 and self._is_http2)
        return (policy.http2_table if is_http2 else policy.http1_table) or table_of(self._routes_of(policy))

    def _accrual(self, policy: ClientPolicy) -> FailureAccrual | None:
        if policy.protocol == HTTP_1:
            return policy.http1_accrual
        if policy.protocol in (HTTP_2, GRPC):
            return policy.http2_accrual
        return policy.http2_accrual if self._is_http2 else policy.http1_accrual

    def _named(self, policy: ClientPolicy, route: ClientRoute) -> NamedRoute:
        of = RouteOf(policy.meta, route.meta, route.is_grpc)
        names_hosts = self._runtime.config.outbound_metrics_hostname_labels
        numbers = RouteNumbers(self._runtime.registry, of, names_hosts)
        return NamedRoute(f"{self._place.context}: route {route.meta}", numbers)

    def _rule(self, place: NamedRoute, rule: ClientRule) -> RuleStage:
        filters = compile_filters(rule.filters)

        def stage_of(one: RouteBackend) -> RuleBackend:
            return self._backend(place, one, filters.on_response)

        chooser = compile_distribution(rule.distribution, stage_of)
        stage: RuleStage
        self._unmade.add(chooser)
        if chooser.count == 1:
            stage = chooser.backends[0]
        else:
            stage = Distributing(chooser, self._rescue, place)
        if filters.on_request is not None:
            stage = Filtered(filters.on_request, stage, self._rescue, place)
        return with_tries(stage, self._runtime, rule, place.numbers.of)

    def _backend(self, place: NamedRoute, one: RouteBackend, on_response: ResponseFilter | None) -> RuleBackend:
        """`on_response` is the rule's, which sees a response after the backend's own."""
        backend = one.backend
        made = self._concrete(backend)
        filters = compile_filters(one.filters)
        both = response_chain([each for each in (filters.on_response, on_response) if each is not None])
        editor = FilteredResponse(both) if both is not None else None
        if filters.on_request is None:
            return RuleBackend(made, backend, place, self._rescue, editor)
        return FilteredBackend(made, backend, place, self._rescue, editor, filters.on_request)

    def _concrete(self, backend: Backend) -> Concrete:
        """The existing stage of this backend, or a new one."""
        made = self._backends.get(backend)
        if made is not None:
            return made
        made = self._former.pop(backend, None)
        if made is None:
            endpoints = self._destination.endpoints
            made = concrete(backend, self._terms, self._runtime, self._rescue, endpoints, self._is_http2)
        else:
            made.use(self._terms)
        self._backends[backend] = made
        return made
