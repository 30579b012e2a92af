"""Profile: what Destination/GetProfile reports about a destination (docs/linkerd/service-profiles.md).

A value, replaced whole by each message. Two profiles with the same content are equal, so that a message that repeats the
last one changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.address.addr import Addr
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.profiles.condition import AllOf, RequestCondition
from proxy.policy.profiles.profile_table import ProfileTable, table_of


@dataclass(frozen=True, slots=True)
class ResponseClasses:
    """A route's response classes by status. If several classes match a status, the first counts; that is decided when
    the object is made.
    """

    successes: frozenset[int] = frozenset()
    failures: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """Valid by construction of the message (docs/linkerd/service-profiles.md, section 5.3)."""

    ttl_s: float
    ratio: float
    """Retries for each request that was not retried, 0 to 1000."""
    min_per_s: int
    """Retries that are allowed without any such request."""


@dataclass(frozen=True, slots=True)
class ProfileRoute:
    condition: RequestCondition
    labels: tuple[tuple[str, str], ...] = ()
    """The labels of its metrics, sorted by name, without their `rt_`."""
    classes: ResponseClasses = ResponseClasses()
    has_classes: bool = False
    """False also for a route whose classes were all left out."""
    is_retryable: bool = False
    timeout_s: float | None = None
    """From a request to its response's head, retries included; None stands for no limit."""


def default_route() -> ProfileRoute:
    """The route of requests that match no other."""
    return ProfileRoute(AllOf(()))


@dataclass(frozen=True, slots=True)
class Profile:
    name: str = ""
    """`fully_qualified_name:port` if it parsed, else empty."""
    is_opaque: bool = False
    endpoint: tuple[Addr, EndpointMeta] | None = None
    routes: tuple[ProfileRoute, ...] = ()
    budget: RetryBudget | None = None
    """Shared by all its routes; without one nothing is retried."""
    overrides: tuple[tuple[str, int], ...] = ()
    """`name:port` and weight, which is above 0, of each dst override."""
    table: ProfileTable | None = field(default=None, compare=False, repr=False)
    """The index of its routes, if it was made when they were read."""

    def routes_table(self) -> ProfileTable:
        return self.table or table_of([one.condition for one in self.routes])

    @property
    def routes_http(self) -> bool:
        """Whether it takes precedence over the policy for requests (docs/linkerd/service-profiles.md, section 2)."""
        return bool(self.name) and bool(self.routes or self.overrides)

    @property
    def routes_opaque(self) -> bool:
        """Whether it takes precedence over the policy for opaque connections."""
        return bool(self.name) and bool(self.overrides)
