"""ProfiledRoute: one route of a ServiceProfile, ready for requests (docs/linkerd/service-profiles.md, section 5).

It is the Place that texts and classification know a request by, and the Observer of its numbers: `route_*` counts
requests, `route_actual_*` each time that one was sent.
"""

from __future__ import annotations

from typing import Final

from proxy.core.failure.reason import Reason
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import Field, field
from proxy.metrics.scope import Ended, RequestScope
from proxy.outbound import labels
from proxy.outbound.http.concrete import Concrete, shed
from proxy.outbound.http.profile.budget import SharedBudget
from proxy.outbound.http.profile.retries import ProfileRetries
from proxy.outbound.http.profile.timeout import RouteTimeout
from proxy.outbound.http.rescue import Rescue
from proxy.outbound.http.retry.tries import Tries
from proxy.outbound.runtime import Runtime
from proxy.policy.distribution import Chooser
from proxy.policy.profiles.classify import ClassifyingRoute, classify
from proxy.policy.profiles.profile import ProfileRoute
from proxy.policy.routes.redirect import Match

_CANONICAL: Final = b"l5d-dst-canonical"
_UNANSWERED: Final = Ended(0, False, "", "unclassified")
"""No endpoint was reached, so the client's answer is not the service's."""
_TIMED_OUT: Final = Ended(0, False, "", "timeout")


class Target:
    """A backend that a split may choose."""

    __slots__ = ("concrete",)

    def __init__(self, made: Concrete) -> None:
        self.concrete: Final = made

    @property
    def is_ready(self) -> bool:
        return self.concrete.is_ready


class Shared:
    """What all routes of one profile have in common."""

    __slots__ = ("name", "context", "canonical", "runtime", "rescue", "chooser", "budget")

    def __init__(
        self, name: str, runtime: Runtime, rescue: Rescue, chooser: Chooser[Target], budget: SharedBudget | None
    ) -> None:
        self.name: Final = name
        """`name:port` of the service."""
        self.context: Final = f"logical service {name}"
        self.canonical: Final[Field] = field(_CANONICAL, name.encode())
        """The field that names the profile to the peer's proxy, which classifies and counts by it."""
        self.runtime: Final = runtime
        self.rescue: Final = rescue
        self.chooser: Final = chooser
        self.budget: Final = budget

    @property
    def is_ready(self) -> bool:
        return any(one.is_ready for one in self.chooser.backends)


class SentNumbers:
    """`route_actual_*` of one route: they count each time that a request was sent."""

    __slots__ = ("scope",)

    def __init__(self, scope: RequestScope) -> None:
        self.scope: Final = scope

    # ---- http.attempt.AttemptNumbers

    def attempt_became_tunnel(self, attempt: Attempt, response: ResponseHead) -> None:
        """Nothing is counted yet; the tunnel is counted when it ends."""

    def attempt_ended(self, attempt: Attempt) -> None:
        ended = _ended(attempt.exchange)
        if ended is not None:
            self.scope.count(ended)


class ProfiledRoute(ClassifyingRoute):
    """A route, and the RuleStage that its requests pass each time that they are sent."""

    __slots__ = ("_shared", "_scope", "_sent", "_retries", "_timeout_s", "_timeout_ticks")

    def __init__(self, route: ProfileRoute, shared: Shared) -> None:
        super().__init__(shared.context, route.classes, route.has_classes)
        self._shared = shared
        registry = shared.runtime.registry
        named = labels.profile_route("outbound", shared.name, route)
        self._scope = registry.requests("route_", named)
        self._sent = SentNumbers(registry.requests("route_actual_", named))
        budget = shared.budget
        self._retries = (
            ProfileRetries(self, budget, registry, named) if route.is_retryable and budget is not None else None
        )
        self._timeout_s = route.timeout_s or 0.0
        self._timeout_ticks = shared.runtime.reactor.wheel.ticks(self._timeout_s)

    def begin(self, exchange: Exchange, head: RequestHead) -> None:
        shared = self._shared
        exchange.route = self
        self._scope.requests += 1
        if self._timeout_s:
            timeout = RouteTimeout(exchange, self._timeout_s, shared.rescue)
            timeout.arm(shared.runtime.reactor.wheel, self._timeout_ticks)
            exchange.observers = (*exchange.observers, self, timeout)
            exchange.editor = timeout
        else:
            others = exchange.observers  # the inbound side's, if the request came through the gateway
            exchange.observers = (*others, self) if others else (self,)
        fields = head.fields
        if head.has_l5d:
            fields = [one for one in fields if one.name != _CANONICAL]
        head = head.with_fields([*fields, shared.canonical])
        head.has_l5d = True
        retries = self._retries
        if retries is None or head.body_size > retries.max_request_bytes:
            self.route(exchange, head, None)
        else:
            Tries(shared.runtime.retries, exchange, retries).begin(self, head, None)

    # ---- RuleStage

    @property
    def is_ready(self) -> bool:
        return self._shared.is_ready

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        sent = self._sent
        sent.scope.requests += 1
        target = self._shared.chooser.choose()
        if target is not None:
            attempt = Attempt(exchange, head)
            attempt.numbers = sent
            exchange.attempt = attempt  # also while it waits for an endpoint: how that ends is counted
            if target.concrete.take(attempt):
                return
            exchange.attempt = None
        sent.scope.count(_UNANSWERED)
        shed(exchange, self._shared.rescue, [one.concrete for one in self._shared.chooser.backends])

    # ---- Observer

    def response_began(self, exchange: Exchange) -> None:
        response = exchange.response
        if response is not None and exchange.endpoint is not None and exchange.reason is not Reason.RESPONSE_TIMEOUT:
            self._scope.response_began(response.status, exchange.answered_at - exchange.dispatched_at)

    def exchange_ended(self, exchange: Exchange) -> None:
        ended = _TIMED_OUT if exchange.reason is Reason.RESPONSE_TIMEOUT else _ended(exchange)
        if ended is not None:
            self._scope.count(ended)


def _ended(exchange: Exchange) -> Ended | None:
    if exchange.endpoint is not None:
        return classify(exchange)
    return _UNANSWERED if exchange.response is not None else None
