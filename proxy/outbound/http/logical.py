"""HTTP routing of one destination: route, filters, distribution (docs/linkerd/outbound.md, sections 7 and 8).

Stages are built when a policy arrives and only called when a request
does; backends outlive policies in which they stay. A running exchange keeps
the stages it began with. Names of what was chosen go into the exchange's
context, whole texts that were made when the stage was.
"""

from __future__ import annotations

from random import random
from typing import Any, Protocol

from proxy.core.watch import Absent
from proxy.http.exchange import Exchange
from proxy.http.grpc import FAILED_PRECONDITION
from proxy.http.head import ResponseHead
from proxy.outbound.discover import Destination
from proxy.outbound.given import Given
from proxy.outbound.http.concrete import Concrete, concrete
from proxy.outbound.http.endpoint import strip
from proxy.outbound.http.rescue import LOAD_SHED, NO_ROUTE, UNEXPECTED, Failure, Rescue
from proxy.policy.client import (
    EMPTY,
    GRPC,
    HTTP_1,
    HTTP_2,
    OPAQUE,
    RANDOM_AVAILABLE,
    TLS,
    Backend,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    RouteBackend,
)
from proxy.policy.filter import InvalidRedirectError, location, modify
from proxy.policy.match import RouteTable
from proxy.policy.route import FailureInjector, Filter, GrpcMatch, HeaderModifier, HttpMatch, Redirect

Match = HttpMatch | GrpcMatch | None


class RuleStage(Protocol):
    def route(self, exchange: Exchange, match: Match) -> None:
        """`match` is the one that chose the rule."""


class HttpRouter:
    """Of one destination and one version of HTTP; a Stage."""

    __slots__ = (
        "_given", "_rescue", "_flights", "_destination", "_is_http2", "_context", "_backends", "_table", "_stages",
        "_only", "_only_match",
    )  # fmt: skip

    def __init__(self, given: Given, rescue: Rescue, destination: Destination, is_http2: bool) -> None:
        self._given = given
        self._rescue = rescue
        self._flights = given.flights
        self._destination = destination
        self._is_http2 = is_http2
        self._context = f"logical service {destination.logical}"
        self._backends: dict[Backend, Concrete] = {}
        self._table = RouteTable(())
        self._stages: list[list[RuleStage]] = []
        self._only: RuleStage | None = None
        """Where everything goes, if nothing depends on the request."""
        self._only_match: Match = None
        self._apply(destination.effective.value)
        destination.effective.subscribe(self._apply)

    def dispatch(self, exchange: Exchange) -> None:
        exchange.rescue = self._rescue
        flights = self._flights
        if flights.count >= flights.most:
            self._rescue.fail(exchange, LOAD_SHED, "service unavailable")
            return
        only = self._only
        if only is not None:
            only.route(exchange, self._only_match)
            return
        found = self._table.find(exchange.request)
        if found is None:
            exchange.context = self._context
            self._rescue.fail(exchange, NO_ROUTE, "no route")
        else:
            self._stages[found.route][found.rule].route(exchange, found.match)

    def close(self) -> None:
        self._destination.effective.unsubscribe(self._apply)
        for backend in self._backends.values():
            backend.close()

    # ---- building

    def _apply(self, policy: ClientPolicy | Absent | None) -> None:
        if not isinstance(policy, ClientPolicy) or policy.protocol in (OPAQUE, TLS):
            return  # what this router was built for stays (docs/linkerd/outbound.md, section 4.3)
        old = self._backends
        self._backends = {}
        routes = self._routes(policy)
        self._table = RouteTable(routes)
        self._stages = [[self._rule(route, rule, old) for rule in route.rules] for route in routes]
        only = self._table.only
        self._only = self._stages[0][0] if only is not None else None
        self._only_match = only.match if only is not None else None
        for backend in old.values():
            backend.close()

    def _routes(self, policy: ClientPolicy) -> tuple[ClientRoute, ...]:
        if policy.protocol == HTTP_1:
            return policy.http1_routes
        if policy.protocol in (HTTP_2, GRPC):
            return policy.http2_routes
        return policy.http2_routes if self._is_http2 else policy.http1_routes

    def _rule(self, route: ClientRoute, rule: ClientRule, old: dict[Backend, Concrete]) -> RuleStage:
        context = f"{self._context}: route {route.meta}"
        eligible = rule.distribution.eligible()
        backends = [self._backend(context, one, rule, old) for one in eligible]
        stage: RuleStage
        if rule.distribution.kind == EMPTY or not backends:
            stage = Shedding(self._rescue, context)
        elif len(backends) == 1:
            stage = backends[0]
        elif rule.distribution.kind == RANDOM_AVAILABLE and eligible[0].weight:
            weights = [one.weight for one in eligible]
            stage = RandomAvailable(backends, weights, Shedding(self._rescue, context))
        else:
            stage = FirstAvailable(backends, Shedding(self._rescue, context))
        filters = request_filters(rule.filters)
        return Filtered(filters, stage, self._rescue, context) if filters else stage

    def _backend(
        self, context: str, one: RouteBackend, rule: ClientRule, old: dict[Backend, Concrete]
    ) -> RuleBackend | FilteredBackend:
        backend = one.backend
        made = self._backends.get(backend) or old.pop(backend, None)
        if made is None:
            made = concrete(backend, self._given, self._rescue, self._destination.endpoints, self._is_http2)
        self._backends[backend] = made
        inner_context = f"{context}: backend {backend.meta}"
        modifiers = [*response_modifiers(one.filters), *response_modifiers(rule.filters)]
        editor = ResponseModifiers(modifiers) if modifiers else None
        stage = RuleBackend(made, inner_context, Shedding(self._rescue, context), editor)
        filters = request_filters(one.filters)
        return FilteredBackend(stage, Filtered(filters, stage, self._rescue, inner_context)) if filters else stage


class Shedding:
    """Nothing is ready: refuse at once (docs/linkerd/balancing.md, section 7)."""

    __slots__ = ("_rescue", "_context")

    def __init__(self, rescue: Rescue, context: str) -> None:
        self._rescue = rescue
        self._context = context

    def route(self, exchange: Exchange, match: Match) -> None:
        exchange.context = self._context
        self._rescue.fail(exchange, LOAD_SHED, "service unavailable")


class RuleBackend:
    """A rule's way into one backend."""

    __slots__ = ("_concrete", "_context", "_shedding", "_editor")

    def __init__(self, made: Concrete, context: str, shedding: Shedding, editor: ResponseModifiers | None) -> None:
        self._concrete = made
        self._context = context
        self._shedding = shedding
        self._editor = editor

    @property
    def is_ready(self) -> bool:
        return self._concrete.is_ready

    def route(self, exchange: Exchange, match: Match) -> None:
        exchange.context = self._context
        exchange.editor = self._editor
        if not self._concrete.take(exchange):
            self._shedding.route(exchange, match)


class FilteredBackend:
    __slots__ = ("_backend", "_filtered")

    def __init__(self, backend: RuleBackend, filtered: Filtered) -> None:
        self._backend = backend
        self._filtered = filtered

    @property
    def is_ready(self) -> bool:
        return self._backend.is_ready

    def route(self, exchange: Exchange, match: Match) -> None:
        self._filtered.route(exchange, match)


class FirstAvailable:
    __slots__ = ("_backends", "_shedding")

    def __init__(self, backends: list[Any], shedding: Shedding) -> None:
        self._backends = backends
        self._shedding = shedding

    def route(self, exchange: Exchange, match: Match) -> None:
        for backend in self._backends:
            if backend.is_ready:
                backend.route(exchange, match)
                return
        self._shedding.route(exchange, match)


class RandomAvailable:
    """Draws by weight without replacement; the first that is ready wins. Every weight is above 0."""

    __slots__ = ("_backends", "_total", "_shedding")

    def __init__(self, backends: list[Any], weights: list[int], shedding: Shedding) -> None:
        self._backends = list(zip(backends, weights, strict=True))
        self._total = sum(weights)
        self._shedding = shedding

    def route(self, exchange: Exchange, match: Match) -> None:
        left = self._backends
        total = self._total
        while left:
            place = draw([weight for _, weight in left], total, random())
            backend, weight = left[place]
            if backend.is_ready:
                backend.route(exchange, match)
                return
            left = left[:place] + left[place + 1 :]
            total -= weight
        self._shedding.route(exchange, match)


def draw(weights: list[int], total: int, dice: float) -> int:
    """The place that `dice` in [0, 1) falls on."""
    point = dice * total
    for place, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return place
    return len(weights) - 1


# ---- filters


def request_filters(filters: tuple[Filter, ...]) -> tuple[Filter, ...]:
    return tuple(one for one in filters if not (isinstance(one, HeaderModifier) and one.on_response))


def response_modifiers(filters: tuple[Filter, ...]) -> list[HeaderModifier]:
    return [one for one in filters if isinstance(one, HeaderModifier) and one.on_response]


class ResponseModifiers:
    """A ResponseEditor: the backend's modifiers, then the route's."""

    __slots__ = ("_modifiers",)

    def __init__(self, modifiers: list[HeaderModifier]) -> None:
        self._modifiers = modifiers

    def edit_response(self, exchange: Exchange, head: ResponseHead) -> None:
        if head.has_l5d:
            strip(head)
        for modifier in self._modifiers:
            head.fields = modify(head.fields, modifier)


class Filtered:
    """Filters in their order, then the stage, unless one of them has answered."""

    __slots__ = ("_filters", "_inner", "_rescue", "_context")

    def __init__(self, filters: tuple[Filter, ...], inner: RuleStage, rescue: Rescue, context: str) -> None:
        self._filters = filters
        self._inner = inner
        self._rescue = rescue
        self._context = context

    def route(self, exchange: Exchange, match: Match) -> None:
        for one in self._filters:
            if not self._passes(one, exchange, match):
                return
        self._inner.route(exchange, match)

    def _passes(self, one: Filter, exchange: Exchange, match: Match) -> bool:
        exchange.context = self._context
        request = exchange.request
        if isinstance(one, HeaderModifier):
            request.fields = modify(request.fields, one)
            return True
        if isinstance(one, FailureInjector):
            if random() * one.denominator >= one.numerator:
                return True
            status, code = (200, one.status) if one.is_grpc else (one.status, FAILED_PRECONDITION)
            self._rescue.fail(exchange, Failure(status, code, False, ""), one.message)
            return False
        if isinstance(one, Redirect):
            return self._redirects(one, exchange, match)
        self._rescue.fail(exchange, UNEXPECTED, one.text)
        return False

    def _redirects(self, redirect: Redirect, exchange: Exchange, match: Match) -> bool:
        try:
            place = location(redirect, exchange.request, match or HttpMatch())
        except InvalidRedirectError as error:
            self._rescue.fail(exchange, UNEXPECTED, str(error))
            return False
        if place is None:
            return True
        self._rescue.redirect(exchange, redirect.status or 301, place)
        return False
