"""HTTP routing of one destination: route, filters, distribution (docs/linkerd/outbound.md, sections 7 and 8).

Stages are built when a policy arrives and only called when a request does;
backends that the next policy still names are kept. A running exchange keeps the
stages that it began with, and knows the route and the backend that it took. The
head goes from stage to stage beside the exchange: a filter makes another one,
and the attempt begins with the last.
"""

from __future__ import annotations

from typing import Final

from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead, ResponseHead
from proxy.outbound import labels
from proxy.outbound.backend.split import service_meta
from proxy.outbound.discovery.discover import GATEWAY, Destination
from proxy.outbound.http.concrete import Concrete, Terms, concrete, shed
from proxy.outbound.http.filters import answer
from proxy.outbound.http.numbers import BackendNumbers, RouteNumbers, RouteOf
from proxy.outbound.http.profile.routes import ProfileRoutes
from proxy.outbound.http.rescue import LOAD_SHED, NO_ROUTE, Rescue
from proxy.outbound.http.retry.stage import with_tries
from proxy.outbound.http.rule import BackendPlace, RuleStage
from proxy.outbound.runtime import Runtime
from proxy.policy.client import (
    GRPC,
    HTTP_1,
    HTTP_2,
    OPAQUE,
    TLS,
    Backend,
    Balance,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    FailureAccrual,
    RouteBackend,
)
from proxy.policy.distribution import Chooser, compile_distribution
from proxy.policy.meta import default_meta
from proxy.policy.profiles.profile import Profile
from proxy.policy.routes.filter import RequestFilter, ResponseFilter, compile_filters, response_chain
from proxy.policy.routes.redirect import Match
from proxy.policy.routes.table import RouteTable, table_of


class Named:
    """A Place: a destination or one of its routes."""

    __slots__ = ("context",)

    def __init__(self, context: str) -> None:
        self.context: Final = context


class NamedRoute(Named):
    """A route, with its numbers."""

    __slots__ = ("numbers",)

    def __init__(self, context: str, numbers: RouteNumbers) -> None:
        super().__init__(context)
        self.numbers: Final = numbers


class HttpRouter:
    """The Stage for one destination and one version of HTTP."""

    __slots__ = (
        "_runtime", "_rescue", "_in_flight", "_destination", "_is_http2", "_place", "_backends", "_table", "_stages",
        "_numbers", "_only", "_only_numbers", "_only_match", "_terms",
    )  # fmt: skip

    def __init__(self, runtime: Runtime, rescue: Rescue, destination: Destination, is_http2: bool) -> None:
        self._runtime = runtime
        self._rescue = rescue
        self._in_flight = runtime.in_flight
        self._destination = destination
        self._is_http2 = is_http2
        self._place: Final = Named(f"logical service {destination.logical}")
        self._backends: dict[Backend, Concrete] = {}
        self._table = table_of(())
        self._stages: list[list[RuleStage]] = []
        self._numbers: list[RouteNumbers] = []
        """The numbers of each route."""
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
        found = self._table.find(exchange.request)
        if found is None:
            exchange.route = self._place
            self._rescue.fail(exchange, NO_ROUTE, "no route")
        else:
            self._numbers[found.route].begin(exchange)
            self._stages[found.route][found.rule].route(exchange, exchange.request, found.match)

    def close(self) -> None:
        self._destination.effective.unsubscribe(self._apply)
        self._destination.profile.unsubscribe(self._apply)
        for backend in self._backends.values():
            backend.close()

    # ---- building

    def _apply(self, _changed: object) -> None:
        """Use the profile if it routes, or if this is a gateway; otherwise the policy, with the same backends as before."""
        profile, policy = self._destination.profile.value, self._destination.effective.value
        old = self._backends
        is_gateway = self._destination.kind == GATEWAY
        if isinstance(profile, Profile) and (profile.routes_http or (is_gateway and profile.name)):
            self._backends = {}
            self._terms = Terms(service_meta(profile.name))
            self._only = ProfileRoutes(
                profile, self._destination, self._runtime, self._rescue, lambda one: self._concrete(one, old)
            )
            self._only_numbers = self._only_match = None
        elif isinstance(policy, ClientPolicy) and policy.protocol not in (OPAQUE, TLS):
            self._backends = {}
            self._apply_policy(policy, old)
        else:
            return  # what this router was built for stays (docs/linkerd/outbound.md, section 4.3)
        for backend in old.values():
            backend.close()

    def _apply_policy(self, policy: ClientPolicy, old: dict[Backend, Concrete]) -> None:
        routes = self._routes(policy)
        self._terms = Terms(policy.meta, self._accrual(policy))
        self._table = self._table_of(policy)
        named = [self._named(policy, route) for route in routes]
        self._numbers = [one.numbers for one in named]
        self._stages = [
            [self._rule(place, rule, old) for rule in route.rules] for place, route in zip(named, routes, strict=True)
        ]
        only = self._table.only
        self._only = self._stages[0][0] if only is not None else None
        self._only_numbers = self._numbers[0] if only is not None else None
        self._only_match = only.match if only is not None else None

    def _routes(self, policy: ClientPolicy) -> tuple[ClientRoute, ...]:
        if policy.protocol == HTTP_1:
            return policy.http1_routes
        if policy.protocol in (HTTP_2, GRPC):
            return policy.http2_routes
        return policy.http2_routes if self._is_http2 else policy.http1_routes

    def _table_of(self, policy: ClientPolicy) -> RouteTable:
        is_http2 = policy.protocol in (HTTP_2, GRPC) or (policy.protocol != HTTP_1 and self._is_http2)
        return (policy.http2_table if is_http2 else policy.http1_table) or table_of(self._routes(policy))

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

    def _rule(self, place: NamedRoute, rule: ClientRule, old: dict[Backend, Concrete]) -> RuleStage:
        filters = compile_filters(rule.filters)

        def stage_of(one: RouteBackend) -> RuleBackend:
            return self._backend(place, one, filters.on_response, old)

        chooser = compile_distribution(rule.distribution, stage_of)
        stage: RuleStage
        if len(chooser.backends) == 1:
            stage = chooser.backends[0]
        else:
            stage = Distributing(chooser, self._rescue, place)
        if filters.on_request is not None:
            stage = Filtered(filters.on_request, stage, self._rescue, place)
        return with_tries(stage, self._runtime, rule, place.numbers.of)

    def _backend(
        self, place: NamedRoute, one: RouteBackend, on_response: ResponseFilter | None, old: dict[Backend, Concrete]
    ) -> RuleBackend:
        """`on_response` is the rule's, which sees a response after the backend's own."""
        backend = one.backend
        made = self._concrete(backend, old)
        filters = compile_filters(one.filters)
        both = response_chain([each for each in (filters.on_response, on_response) if each is not None])
        editor = FilteredResponse(both) if both is not None else None
        if filters.on_request is None:
            return RuleBackend(made, backend, place, self._rescue, editor)
        return FilteredBackend(made, backend, place, self._rescue, editor, filters.on_request)

    def _concrete(self, backend: Backend, old: dict[Backend, Concrete]) -> Concrete:
        """The existing stage of this backend, or a new one. What is left in `old` afterwards is no longer used."""
        made = self._backends.get(backend) or old.pop(backend, None)
        if made is None:
            endpoints = self._destination.endpoints
            made = concrete(backend, self._terms, self._runtime, self._rescue, endpoints, self._is_http2)
        else:
            made.use(self._terms)
        self._backends[backend] = made
        return made


class RuleBackend(BackendPlace):
    """The way from a rule to one of its backends."""

    __slots__ = ("rescue", "concrete", "_place", "_editor", "_numbers")

    def __init__(
        self, made: Concrete, backend: Backend, place: NamedRoute, rescue: Rescue, editor: FilteredResponse | None
    ) -> None:
        name = f"{backend.meta}: " if isinstance(backend.dispatch, Balance) else ""
        super().__init__(f"{place.context}: backend {backend.meta}", name)
        self.rescue: Final = rescue
        self.concrete: Final = made
        self._place = place
        self._editor = editor
        self._numbers: Final[BackendNumbers] = place.numbers.of_backend(labels.counted_backend(backend))

    @property
    def is_ready(self) -> bool:
        return self.concrete.is_ready

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        exchange.route = self._place
        exchange.backend = self
        exchange.editor = self._editor
        numbers = self._numbers
        attempt = Attempt(exchange, head)
        attempt.numbers = numbers
        exchange.attempt = attempt  # also while it waits for an endpoint: how that ends is counted
        exchange.response_frames = numbers.frames
        if self.concrete.take(attempt):
            numbers.requests.value += 1
        else:
            exchange.attempt = exchange.backend = None
            shed(exchange, self.rescue, (self.concrete,))


class FilteredBackend(RuleBackend):
    """A RuleBackend with filters of its own, which see a request once the backend is chosen."""

    __slots__ = ("_filter",)

    def __init__(
        self,
        made: Concrete,
        backend: Backend,
        place: NamedRoute,
        rescue: Rescue,
        editor: FilteredResponse | None,
        filter_: RequestFilter,
    ) -> None:
        super().__init__(made, backend, place, rescue, editor)
        self._filter = filter_

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        exchange.backend = self
        filtered = self._filter(head, match)
        if isinstance(filtered, RequestHead):
            super().route(exchange, filtered, match)
        else:
            attempt = exchange.attempt = Attempt(exchange, head)
            attempt.numbers = self._numbers  # what a backend's filter answers counts as the backend's
            self._numbers.requests.value += 1
            answer(self.rescue, exchange, filtered)


class Distributing:
    """The stage of a rule with several backends, or with none."""

    __slots__ = ("_chooser", "_rescue", "_place")

    def __init__(self, chooser: Chooser[RuleBackend], rescue: Rescue, place: Named) -> None:
        self._chooser = chooser
        self._rescue = rescue
        self._place = place

    @property
    def is_ready(self) -> bool:
        return any(one.is_ready for one in self._chooser.backends)

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        backend = self._chooser.choose()
        if backend is None:
            exchange.route = self._place
            exchange.backend = None
            shed(exchange, self._rescue, [one.concrete for one in self._chooser.backends])
        else:
            backend.route(exchange, head, match)


# ---- filters


class Filtered:
    """The stage of a rule with request filters; requests that pass them go on to the inner stage."""

    __slots__ = ("_filter", "_inner", "_rescue", "_place")

    def __init__(self, filter_: RequestFilter, inner: RuleStage, rescue: Rescue, place: Named) -> None:
        self._filter = filter_
        self._inner = inner
        self._rescue = rescue
        self._place = place

    @property
    def is_ready(self) -> bool:
        return self._inner.is_ready

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        exchange.route = self._place
        filtered = self._filter(head, match)
        if isinstance(filtered, RequestHead):
            self._inner.route(exchange, filtered, match)
        else:
            answer(self._rescue, exchange, filtered)


class FilteredResponse:
    """A ResponseEditor: the backend's filters, then the route's."""

    __slots__ = ("_filter",)

    def __init__(self, filter_: ResponseFilter) -> None:
        self._filter = filter_

    def edit_response(self, exchange: Exchange, head: ResponseHead) -> ResponseHead:
        return self._filter(head)
