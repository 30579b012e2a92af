"""The inbound side, read first: what happens to a connection that another workload, or a peer's proxy, made to ours.

Law: the order below is the order of events; each step is one file.

    accept      where did it want to go, and may it         accept.py    (SO_ORIGINAL_DST, INBOUND_IPS)
    direct      it wants the proxy itself: which port then   direct.py    (mTLS, transport header)
    policies    what holds for that port now                 policies.py  (one watch per port, kept while used)
    server      which bytes does it speak                    server.py    (TLS by ClientHello, HTTP by its first bytes)
    authorize   may this client                              authorize.py (connections; requests by route)
    opaque      bytes both ways                              opaque.py
    http        what is a request told on its way            http.py      (orig-proto, l5d-client-id, rescue)
    router      which route of the policy is it              router.py
    local       over which connection to the app             local.py
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxy.core.addr import Addr
from proxy.core.drain import Drain
from proxy.core.reactor import Reactor
from proxy.core.watch import Watch
from proxy.http.exchange import Stage
from proxy.policy.server import ServerPolicy


@dataclass(frozen=True, slots=True)
class Lookups:
    """Whom the inbound side asks; each answer is a Watch, and `close()` on it cancels the question."""

    policy: Callable[[int, ServerPolicy], Watch[ServerPolicy]]
    """Of a port of this workload, with what holds until the first answer."""


class Inbound:
    """One worker's inbound proxy; app.py makes it and gives its `accept` to the listener."""

    def __init__(
        self, reactor: Reactor, config: Any, credentials: Any, lookups: Lookups, registry: Any, drain: Drain
    ) -> None:
        raise NotImplementedError

    def accept(self, sock: socket.socket, peer: Addr) -> None:
        """Take over an accepted connection. Never raises: what fails ends this connection only."""
        raise NotImplementedError

    def admin(self, stage: Stage) -> Callable[[socket.socket, Addr], None]:
        """The `accept` of the admin listener: TLS and HTTP are detected within a second each, the admin port's policy applies,
        and what it permits goes to this stage instead of the app."""
        raise NotImplementedError

    def close(self) -> None:
        """Cancel every question and drop every idle connection to the app; connections that work are Drain's."""
        raise NotImplementedError
