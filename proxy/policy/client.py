"""ClientPolicy: the control plane's policy for one outbound destination (docs/linkerd/outbound.md, section 6).

A value; replaced whole by each message. A message that breaks a rule
becomes `invalid_policy`, never a half-understood one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta
from proxy.policy.protocol import DETECT as DETECT
from proxy.policy.protocol import GRPC as GRPC
from proxy.policy.protocol import HTTP_1 as HTTP_1
from proxy.policy.protocol import HTTP_2 as HTTP_2
from proxy.policy.protocol import OPAQUE as OPAQUE
from proxy.policy.protocol import TLS as TLS
from proxy.policy.routes.route import Filter, GrpcMatch, HostMatch, HttpMatch, Unusable
from proxy.policy.routes.table import RouteTable


@dataclass(frozen=True, slots=True)
class PeakEwmaLoad:
    default_rtt_s: float = 0.03
    decay_s: float = 10.0


@dataclass(frozen=True, slots=True)
class PenaltyLoad:
    default_rtt_s: float = 0.03
    decay_s: float = 10.0
    penalty_s: float = 5.0
    max_retry_after_s: float = 300.0


@dataclass(frozen=True, slots=True)
class LeastRequestLoad:
    """Ours: the load of an endpoint is the number of its requests, however fast it answers them."""


LoadPolicy = PeakEwmaLoad | PenaltyLoad | LeastRequestLoad


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings of ours, beyond Linkerd's balancing. None means that the policy does not set it, and the proxy's own
    default applies.
    """

    least_request: bool | None = None
    """Whether least request is used in place of peak EWMA; penalties stay."""
    slow_start_s: float | None = None
    """How long the share of an endpoint grows after it has become ready; 0 switches that off."""
    probe_share: float | None = None
    """The share of requests that go to an endpoint without work, though it was slow before; 0 for none."""


@dataclass(frozen=True, slots=True)
class Balance:
    path: str
    """`name:port` to ask the destination service for."""
    load: LoadPolicy = PeakEwmaLoad()
    tuning: Tuning = Tuning()


@dataclass(frozen=True, slots=True)
class Forward:
    addr: Addr
    endpoint: EndpointMeta = EndpointMeta()


@dataclass(frozen=True, slots=True)
class Fail:
    text: str


@dataclass(frozen=True, slots=True)
class Backend:
    meta: Meta
    dispatch: Balance | Forward | Fail


@dataclass(frozen=True, slots=True)
class RouteBackend:
    backend: Backend
    weight: int = 1
    filters: tuple[Filter, ...] = ()


DistributionKind = Literal["empty", "first-available", "random-available"]
EMPTY: Final = "empty"
FIRST_AVAILABLE: Final = "first-available"
RANDOM_AVAILABLE: Final = "random-available"


@dataclass(frozen=True, slots=True)
class Distribution:
    kind: DistributionKind
    backends: tuple[RouteBackend, ...] = ()

    def eligible(self) -> tuple[RouteBackend, ...]:
        """The backends that may be chosen. In a random distribution a weight of 0 means never; if all weights are 0,
        the first ready backend in order is chosen, as in Linkerd.
        """
        if self.kind != RANDOM_AVAILABLE:
            return self.backends
        return tuple(one for one in self.backends if one.weight > 0) or self.backends


@dataclass(frozen=True, slots=True)
class Timeouts:
    """None stands for no limit."""

    request_s: float | None = None
    response_s: float | None = None
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    max_retries: int
    max_request_bytes: int
    statuses: tuple[tuple[int, int], ...] = ()
    """Inclusive ranges of HTTP statuses."""
    grpc_codes: frozenset[int] = frozenset()
    timeout_s: float | None = None
    backoff: Backoff | None = None


@dataclass(frozen=True, slots=True)
class ClientRule:
    matches: tuple[HttpMatch | GrpcMatch, ...]
    filters: tuple[Filter, ...]
    distribution: Distribution
    timeouts: Timeouts = Timeouts()
    retry: Retry | None = None
    allows_l5d_headers: bool = False


@dataclass(frozen=True, slots=True)
class ClientRoute:
    meta: Meta
    hosts: tuple[HostMatch, ...]
    rules: tuple[ClientRule, ...]
    is_grpc: bool = False


FORBIDDEN: Final = "forbidden"
INVALID_BACKEND: Final = "invalid_backend"
INVALID_POLICY: Final = "invalid_policy"


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """An opaque or TLS route with its one rule."""

    meta: Meta
    distribution: Distribution
    snis: tuple[HostMatch, ...] = ()
    refusal: str = ""
    """Every connection is closed for this reason (`forbidden`, `invalid_backend`, `invalid_policy`)."""
    refusal_text: str = ""


@dataclass(frozen=True, slots=True)
class ConsecutiveFailures:
    max_failures: int
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class Unified:
    success_rate_threshold: float
    window_s: float
    min_requests: int
    max_consecutive_failures: int
    backoff: Backoff


FailureAccrual = ConsecutiveFailures | Unified


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    meta: Meta
    protocol: str
    """DETECT, OPAQUE, TLS, HTTP_1, HTTP_2 or GRPC; which of the routes below are filled follows from it."""
    http1_routes: tuple[ClientRoute, ...] = ()
    http2_routes: tuple[ClientRoute, ...] = ()
    opaque_routes: tuple[StreamRoute, ...] = ()
    tls_routes: tuple[StreamRoute, ...] = ()
    http1_accrual: FailureAccrual | None = None
    http2_accrual: FailureAccrual | None = None
    http1_table: RouteTable | None = field(default=None, compare=False, repr=False)
    """The index of `http1_routes`, if it was made with the policy because there may be thousands."""
    http2_table: RouteTable | None = field(default=None, compare=False, repr=False)


def forward_policy(meta: Meta, addr: Addr, endpoint: EndpointMeta) -> ClientPolicy:
    """The synthesized policy of a destination that the control plane knows nothing of (docs/linkerd/outbound.md, section 3.1)."""
    backend = Backend(Meta("", "default", "unknown"), Forward(addr, endpoint))
    distribution = Distribution(FIRST_AVAILABLE, (RouteBackend(backend),))
    routes = (ClientRoute(meta, (), (ClientRule((), (), distribution),)),)
    return ClientPolicy(meta, DETECT, routes, routes, (StreamRoute(meta, distribution),))


def invalid_policy() -> ClientPolicy:
    """Replaces a message that cannot be converted: HTTP fails with 500, opaque connections are closed."""
    meta = Meta("", "default", "invalid")
    text = "invalid client policy configuration"
    empty = Distribution(EMPTY)
    routes = (ClientRoute(meta, (), (ClientRule((), (Unusable(text),), empty),)),)
    return ClientPolicy(meta, DETECT, routes, routes, (StreamRoute(meta, empty, (), INVALID_POLICY, text),))
