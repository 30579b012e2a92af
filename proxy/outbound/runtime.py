"""Runtime: what all stages of the outbound side share: configuration, credentials, metrics, lookups and limits.

It is read-only once made. Stages take what they need from it when they are
built, at the first use of a destination; nothing here is looked up per request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proxy.balance.balancer import QueueLimits
from proxy.balance.endpoints import Resolution
from proxy.config import Config
from proxy.config.here import here_of
from proxy.core.address.addr import Addr
from proxy.core.address.here import Here
from proxy.core.connection.drain import Drain
from proxy.core.connection.in_flight import InFlight
from proxy.core.failure.troubles import Troubles
from proxy.core.loop.reactor import Reactor
from proxy.core.watch import Absent, Watch
from proxy.metrics.registry import Registry
from proxy.metrics.scraped.balancers import Balancers
from proxy.outbound.http.retry.context import RetryContext
from proxy.policy.client import ClientPolicy
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.profiles.profile import Profile
from proxy.tls.credentials import Credentials
from proxy.transport.detection.early import EarlyDials


def never() -> bool:
    return False


Endpoints = Callable[[str], Watch[Resolution[EndpointMeta]]]
"""Looks up the endpoints of a `name:port`."""


@dataclass(frozen=True, slots=True)
class Lookups:
    """The lookups that the outbound side makes. Each answers with a Watch; closing that cancels the lookup."""

    profile: Callable[[str], Watch[Profile | Absent | None]]
    """The profile of `ip:port`, IPv6 in brackets, or of `name:port`."""
    policy: Callable[[Addr | str], Watch[ClientPolicy | Absent | None]]
    """The policy of an address, or of `name:port`."""
    endpoints: Endpoints
    """The endpoints of a backend's `name:port`."""
    resolve: Endpoints
    """The addresses of `host:port` by the system's resolver, for names outside the mesh (explicit outbound only):
    KNOWN with empty metadata, or FAILED with what the resolver said."""
    is_stale: Callable[[], bool] = never
    """The control plane is away: answers that are not in use are kept, because they could not be asked for again."""


class Runtime:
    __slots__ = (
        "reactor", "config", "credentials", "lookups", "registry", "drain", "http_queue", "tcp_queue", "in_flight", "retries", "here", "troubles", "balancers",
        "early",
    )  # fmt: skip

    def __init__(
        self,
        reactor: Reactor,
        config: Config,
        credentials: Credentials,
        lookups: Lookups,
        registry: Registry,
        drain: Drain,
    ) -> None:
        self.reactor: Final = reactor
        self.config: Final = config
        self.credentials: Final = credentials
        """`client_context(offers_transport_header)`: asked for every connection, since certificates rotate."""
        self.lookups: Final = lookups
        self.registry: Final = registry
        self.drain: Final = drain
        self.http_queue: Final = QueueLimits(
            config.outbound_http_queue_capacity, config.outbound_http_failfast_timeout_s
        )
        self.tcp_queue: Final = QueueLimits(config.outbound_tcp_queue_capacity, config.outbound_tcp_failfast_timeout_s)
        self.in_flight: Final = InFlight(config.outbound_max_in_flight)
        """Requests of the whole outbound side; one that waits to be sent again counts too."""
        self.retries: Final = RetryContext(reactor, self.in_flight)
        self.balancers: Final = Balancers(registry)
        """Shows what each counts."""
        self.troubles: Final = Troubles(reactor.clock)
        """Why endpoints cannot be connected to, by their addresses."""
        self.early: Final = EarlyDials(reactor.clock)
        self.here: Here = here_of(config)
        """Both sides of a proxy share one `Here`: app.py replaces this one by the inbound side's before anything is
        accepted.
        """

    def refuses(self, addr: Addr) -> str:
        """Why no connection may be made there (docs/linkerd/outbound.md, section 9.1); empty if one may."""
        here = self.here
        if here.is_loopback(addr) and not self.config.allow_loopback:
            return "Outbound proxy cannot initiate connections on the loopback interface"
        if here.listener_at(addr):
            return f"{addr} is a listener of this proxy: the connection would be a loop"
        return ""

    def is_local(self, addr: Addr) -> bool:
        """Whether this is an address of this workload itself, which is reached without TLS and without a proxy between."""
        return self.here.is_local(addr)
