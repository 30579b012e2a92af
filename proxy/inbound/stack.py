"""The inbound side, read first: what happens to a connection that another workload, or a peer's proxy, made to ours.

The order below is the order of events; each step is one file.

    connection/accept      where did it want to go, and may it     (SO_ORIGINAL_DST, INBOUND_IPS)
    connection/arrival     is it TLS for us                        (by its ClientHello, before anything is read)
    connection/direct      it wants the proxy itself: which port   (mTLS, transport header)
    gateway/server         or which name of another cluster's
    policies, router       what holds for that port now            (one watch per port, kept while it is used)
    connection/server      which bytes does it speak               (the policy's protocol, or its first bytes)
    connection/authorize   may this client have bytes forwarded
    connection/opaque      bytes both ways
    http/requests          what happens to a request on its way    (orig-proto, l5d-client-id, route, limits)
    http/authorize         may this client take the route
    http/filters           what it gets if a filter answers        (http/rescue: if anything fails)
    http/local             over which connection to the app

The admin port's connections come the same way (connection/admin), but for the app at its end.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proxy.config import Config
from proxy.core.address.addr import Addr
from proxy.core.address.here import ADMIN, INBOUND, Here
from proxy.core.connection.drain import Drain
from proxy.core.failure.errors import report_fault
from proxy.core.loop.reactor import Reactor
from proxy.core.watch import Watch
from proxy.http.exchange import Stage
from proxy.inbound.connection.accept import Accept, destination
from proxy.inbound.connection.admin import AdminServer
from proxy.inbound.connection.arrival import Arrival
from proxy.inbound.connection.direct import DirectServer
from proxy.inbound.connection.server import AppServer
from proxy.inbound.gateway.onward import FindOnward
from proxy.inbound.gateway.server import Gateway
from proxy.inbound.http.local import Local, Loop
from proxy.inbound.http.profiles import FindProfile, InboundProfiles
from proxy.inbound.policies import Policies, never
from proxy.inbound.runtime import Runtime
from proxy.metrics import Registry
from proxy.policy.defaults import default_policy, opaque_form
from proxy.policy.server import ServerPolicy
from proxy.tls.credentials import Credentials

OnAccept = Callable[[socket.socket, Addr], None]


@dataclass(frozen=True, slots=True)
class Lookups:
    """What the inbound side looks up. Closing a Watch ends its lookup."""

    policy: Callable[[int, ServerPolicy], Watch[ServerPolicy]]
    """The policy of a port of this workload; the second argument applies until the first answer."""
    destination: Callable[[socket.socket, Addr], Addr] = destination
    """Where the client of an accepted socket was going; OSError if that is not known."""
    onward: FindOnward | None = None
    """The outbound side's way to a name, for a gateway; None if there is no gateway."""
    profile: FindProfile | None = None
    """The ServiceProfile of a service's `name:port`."""
    is_stale: Callable[[], bool] = never
    """Whether the control plane is away. While it is, answers that are not in use are kept."""


class Inbound:
    """One worker's inbound proxy; app.py makes it and gives its `accept` to the listener."""

    def __init__(
        self,
        reactor: Reactor,
        config: Config,
        credentials: Credentials,
        lookups: Lookups,
        registry: Registry,
        drain: Drain,
    ) -> None:
        self.policies: Final = Policies(
            reactor,
            lookups.policy,
            _initial(config),
            config.inbound_ports,
            config.inbound_discovery_idle_timeout_s,
        )
        self.policies.is_stale = lookups.is_stale
        self._runtime: Final = Runtime(reactor, config, credentials, self.policies, registry, drain)
        if lookups.profile is not None:
            self._runtime.profiles = InboundProfiles(reactor, config, registry, lookups.profile)
        self._local: Final = Local(self._runtime)
        self._pages: Callable[[bool], Stage] | None = None
        direct = DirectServer(self._runtime, self._app, Gateway(self._runtime, lookups.onward))
        app = AppServer(self._runtime, self._app)
        self._accept: Final = Accept(self._runtime, direct, app, lookups.destination)

    @property
    def here(self) -> Here:
        return self._runtime.here

    def listens_at(self, addr: Addr) -> None:
        """Where the listener was bound, if the configuration left the port open."""
        self._runtime.direct_port = addr.port
        self._runtime.here.listens(addr, INBOUND)

    def accept(self, sock: socket.socket, peer: Addr) -> None:
        """Take over an accepted connection. Never raises: what fails ends this connection only."""
        try:
            self._accept.accept(sock, peer)
        except Exception:
            report_fault()
            sock.close()

    def admin(self, addr: Addr, pages: Callable[[bool], Stage], drain: Drain) -> OnAccept:
        """The `accept` of the admin listener at this address: TLS and HTTP are detected within a second each, the admin
        port's policy applies, and what it permits goes to `pages(whether the client is local)` instead of the app. Its
        connections are entered in `drain`.

        A peer that asks for the admin port through a transport header gets the pages too, and is not local.
        """
        self._pages = pages
        self._runtime.here.listens(addr, ADMIN)
        return AdminServer(self._runtime, addr, pages, drain).accept

    def close(self) -> None:
        """Cancel every lookup and close every idle connection to the app; connections that are in use are Drain's."""
        self.policies.close()
        profiles = self._runtime.profiles
        if profiles is not None:
            profiles.close()
        self._local.close()

    def _app(self, arrival: Arrival) -> Stage:
        listener = self._runtime.listener_at(arrival.target)
        if listener == ADMIN and self._pages is not None:
            return self._pages(False)
        if listener:
            return Loop()
        app = self._local.take(arrival.target)
        arrival.leads_to(app)
        return app


def _initial(config: Config) -> Callable[[int], ServerPolicy]:
    """The policy that applies to a port before the control plane's first answer."""
    default = default_policy(
        config.inbound_default_policy, config.policy_cluster_networks.blocks, config.inbound_detect_timeout_s
    )
    opaque = opaque_form(default)
    undetected = config.inbound_ports_disable_protocol_detection
    return lambda port: opaque if port in undetected else default
