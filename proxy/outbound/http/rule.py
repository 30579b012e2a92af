"""The stages of a route's rule: what becomes of a request that the rule matched, until a backend has it."""

from __future__ import annotations

from typing import Final, Protocol

from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.outbound import labels
from proxy.outbound.http.concrete import Concrete, shed
from proxy.outbound.http.filters import FilteredResponse, answer
from proxy.outbound.http.numbers import BackendNumbers, RouteNumbers
from proxy.outbound.http.rescue import Rescue
from proxy.policy.client import Backend, Balance
from proxy.policy.distribution import Chooser
from proxy.policy.routes.filter import RequestFilter
from proxy.policy.routes.redirect import Match


class BackendPlace:
    """A rule's way into a backend; a Place."""

    __slots__ = ("context", "within")

    def __init__(self, context: str, within: str) -> None:
        self.context: Final = context
        self.within: Final = within
        """The text that goes between the backend's name and the failure in an error: the name of a balancer, or
        nothing.
        """


class RuleStage(Protocol):
    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        """Send this head on for the exchange; `match` is the one that chose the rule."""

    @property
    def is_ready(self) -> bool:
        """Whether some backend takes requests; if none does, requests are shed."""


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
