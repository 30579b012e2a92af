"""ProfileRoutes: the requests of a destination whose ServiceProfile takes precedence over its policy.

Made anew by each profile that is different from the last, as the policy's stages are. What outlives that: the backends
of targets that stay, which belong to the router; the retry budget while its terms stay (budget.py); and the numbers, which the
registry keeps. A running request keeps the routes with which it began.

Routes are made ready when a request first takes them: a profile may have a thousand, of which most destinations see few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.loop.effort import effort_of
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.outbound.backend.split import split_of
from proxy.outbound.discovery.discover import Destination
from proxy.outbound.http.concrete import Concrete
from proxy.outbound.http.profile.budget import SharedBudget
from proxy.outbound.http.profile.route import ProfiledRoute, Shared, Target
from proxy.outbound.http.rescue import Rescue
from proxy.outbound.runtime import Runtime
from proxy.policy.client import Backend
from proxy.policy.distribution import compile_distribution
from proxy.policy.profiles.profile import Profile, default_route
from proxy.policy.routes.redirect import Match

_DEFAULT: Final = default_route()


class ProfileRoutes:
    """The RuleStage of every request of the destination; it finds the request's route."""

    __slots__ = ("_profile", "chooser", "_table", "_made", "_shared")

    def __init__(
        self,
        profile: Profile,
        destination: Destination,
        runtime: Runtime,
        rescue: Rescue,
        concrete_of: Callable[[Backend], Concrete],
    ) -> None:
        """`concrete_of` returns the stage of a backend: the existing one, or a new one."""
        self.chooser: Final = compile_distribution(split_of(profile), lambda one: Target(concrete_of(one.backend)))
        self._profile = profile
        self._table = profile.routes_table()
        self._made: dict[int, ProfiledRoute] = {}
        budget = _budget_of(destination, profile, runtime)
        self._shared = Shared(profile.name, runtime, rescue, self.chooser, budget)

    @property
    def is_ready(self) -> bool:
        return self._shared.is_ready

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        place = self._table.find(head.method, head.path, effort_of(exchange))
        route = self._made.get(place)
        if route is None:
            given = self._profile.routes[place] if place >= 0 else _DEFAULT
            route = self._made[place] = ProfiledRoute(given, self._shared)
        route.begin(exchange, head)


def _budget_of(destination: Destination, profile: Profile, runtime: Runtime) -> SharedBudget | None:
    terms = profile.budget
    if terms is None:
        return None
    found = destination.retry_budget
    if found is None or found.terms != terms:
        found = destination.retry_budget = SharedBudget(terms, runtime.reactor.clock)
    return found
