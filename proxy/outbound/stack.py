"""The outbound side, read first: what happens to a connection that the app made.

Law: the order below is the order of events; each step is one file.

    accept     where did it want to go        transport.orig_dst, explicit.py
    discover   what is known about there      discover.py   (cached per destination)
    protocol   which bytes will it speak      protocol.py
    logical    which route does it take       logical.py    (HTTP), opaque.py (the rest)
    concrete   which backend's endpoint       concrete.py   (balancer, forward, failure)
    endpoint   over which connection          endpoint.py, connect.py
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxy.balance.endpoints import Resolution
from proxy.core.addr import Addr
from proxy.core.drain import Drain
from proxy.core.reactor import Reactor
from proxy.core.watch import Absent, Watch
from proxy.policy.client import ClientPolicy
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.profile import Profile


@dataclass(frozen=True, slots=True)
class Lookups:
    """Whom the outbound side asks; each answer is a Watch, and `close()` on it cancels the question."""

    profile: Callable[[str], Watch[Profile | Absent | None]]
    """Of `ip:port`, IPv6 in brackets, or `name:port`."""
    policy: Callable[[Addr | str], Watch[ClientPolicy | Absent | None]]
    """Of an address, or of `name:port`."""
    endpoints: Callable[[str], Watch[Resolution[EndpointMeta]]]
    """Of a backend's `name:port`."""
    resolve: Callable[[str], Watch[Resolution[EndpointMeta]]]
    """Of `host:port` by the system's resolver, for names outside the mesh (explicit outbound only):
    KNOWN with empty metadata, or FAILED with what the resolver said."""


class Outbound:
    """One worker's outbound proxy; app.py makes it and gives its `accept` to the listeners."""

    def __init__(
        self, reactor: Reactor, config: Any, credentials: Any, lookups: Lookups, registry: Any, drain: Drain
    ) -> None:
        raise NotImplementedError

    def accept(self, sock: socket.socket, peer: Addr) -> None:
        """Take over an accepted connection. Never raises: what fails ends this connection only."""
        raise NotImplementedError

    def close(self) -> None:
        """Cancel every question and drop every idle connection; connections that work are Drain's."""
        raise NotImplementedError
