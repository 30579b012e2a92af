"""Router: which rule of one port's policy a request takes.

It is made once per policy and replaced with it, and knows nothing of
connections. http/authorize.py decides whether a client may take a route.
"""

from __future__ import annotations

from typing import Final

from proxy.core.loop.effort import Effort
from proxy.http.head import RequestHead
from proxy.inbound.http.numbers import RouteNumbers
from proxy.policy.ratelimit import RateLimiter
from proxy.policy.routes.choices import Found
from proxy.policy.routes.filter import compile_filters
from proxy.policy.routes.table import table_of
from proxy.policy.server import ServerPolicy, ServerRoute


class Router:
    __slots__ = ("policy", "limiter", "only", "reads_fields", "filters", "numbers", "_table")

    def __init__(self, policy: ServerPolicy) -> None:
        self.policy: Final = policy
        self.limiter: Final = RateLimiter(policy.rate_limit) if policy.rate_limit is not None else None
        """Its state lives as long as the policy does: an update begins anew (docs/linkerd/inbound.md, section 7)."""
        self._table: Final = policy.table or table_of(policy.routes)
        self.only: Final = self._table.only
        """The rule that every request takes; None if it depends on the request."""
        self.reads_fields: Final = any(
            one.headers for route in policy.routes for rule in route.rules for one in rule.matches
        )
        """Whether it may depend on a request's fields."""
        self.filters: Final = [[compile_filters(rule.filters) for rule in route.rules] for route in policy.routes]
        """The compiled filters of each rule of each route."""
        self.numbers: Final[dict[int, RouteNumbers]] = {}
        """The metrics of routes that requests have taken; filled in by the code that counts them."""

    def find_as(self, request: RequestHead, path: bytes, effort: Effort) -> Found | None:
        """What the request finds with this path; None if no route matches, and always for a policy without routes.
        TooCostlyError if `effort` does not suffice to tell.
        """
        return self._table.find_as(request, path, effort)

    def route(self, found: Found) -> ServerRoute:
        return self.policy.routes[found.route]
