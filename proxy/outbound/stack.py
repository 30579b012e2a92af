"""The outbound side, read first: what happens to a connection that the app made.

The order below is the order of events; each step is one file.

    accept     where was it going             transport.orig_dst, or the folder explicit
    discover   what is known about that       discover.py, effective.py   (cached per destination)
    protocol   which bytes will it speak      protocol.py
    logical    which route does it take       http/logical.py or opaque/logical.py
    concrete   which backend's endpoint       http/concrete.py or opaque/concrete.py (balancer, forward, failure)
    endpoint   over which connection          http/endpoint.py or opaque/endpoint.py, connect.py
    rescue     what if any of it fails        http/rescue.py

In ingress mode protocol comes before discover, which is asked for each request (folder ingress).
"""

from __future__ import annotations

import logging
import socket
from typing import Final

from proxy.config import Config
from proxy.core.address.addr import Addr, addr
from proxy.core.connection.drain import Drain
from proxy.core.failure.errors import report_fault
from proxy.core.loop.reactor import Reactor
from proxy.metrics.registry import Registry
from proxy.outbound.discovery.discover import GATEWAY, Discovery
from proxy.outbound.explicit.connection import ExplicitConnection
from proxy.outbound.http.rescue import Rescue
from proxy.outbound.ingress.connection import Ingress, IngressConnection
from proxy.outbound.onward import Onward
from proxy.outbound.protocol import Accepted, Protocols
from proxy.outbound.runtime import Lookups as Lookups
from proxy.outbound.runtime import Runtime
from proxy.tls.credentials import Credentials
from proxy.transport.orig_dst import original_dst

_log: Final = logging.getLogger(__name__)


class Outbound:
    """One worker's outbound proxy; app.py makes it and gives its `accept` to the listeners."""

    def __init__(
        self,
        reactor: Reactor,
        config: Config,
        credentials: Credentials,
        lookups: Lookups,
        registry: Registry,
        drain: Drain,
    ) -> None:
        self.runtime: Final = Runtime(reactor, config, credentials, lookups, registry, drain)
        """`runtime.here` can be given other listeners than those of the configuration."""
        self.discovery: Final = Discovery(self.runtime)
        self._protocols = Protocols(
            self.runtime, Rescue(registry, config.outbound_disable_informational_headers, self.runtime.troubles)
        )
        self._ingress = Ingress(self._protocols, self.discovery) if config.ingress_mode else None

    def accept(self, sock: socket.socket, peer: Addr) -> None:
        """Take over an accepted connection. Never raises: an error ends this connection only."""
        try:
            own = addr(*sock.getsockname()[:2])
            target = self._target(sock, peer, own)
            here = self.runtime.here
            if here.has_made(peer, own) or (target is not None and here.has_made(peer, target)):
                _log.warning(
                    "Connection of %s dropped: this proxy made it itself, so it would go round in a loop", peer
                )
                self.runtime.registry.faults("outbound").count_as("loop")
                sock.close()
            elif target is None:
                ExplicitConnection(self._protocols, self.discovery, sock, peer).begin()
            else:
                self.redirected(sock, target)
        except OSError as error:
            _log.info("Connection of %s dropped: no original destination: %s", peer, error)
            self.runtime.registry.faults("outbound").count_as("no_original_dst")
            sock.close()
        except Exception:
            report_fault()
            sock.close()

    def redirected(self, sock: socket.socket, target: Addr) -> None:
        """The same for a connection whose original destination is known."""
        if self._ingress is not None:
            IngressConnection(self._ingress, target).begin(sock)
            return
        Accepted(self._protocols, sock, target, self.discovery.get(target)).begin()

    def onward(self, target: str) -> Onward:
        """The way to `name:port` for a connection that came in through the gateway."""
        return Onward(self._protocols, self.discovery.get(target, GATEWAY))

    def close(self) -> None:
        """Cancel every lookup and close idle connections; busy ones are left to Drain."""
        self.discovery.close()

    def _target(self, sock: socket.socket, peer: Addr, own: Addr) -> Addr | None:
        """Where the app was going; None if to this proxy itself, as an explicit client. OSError if the kernel does not know."""
        is_explicit = self.runtime.config.outbound_explicit
        try:
            target = original_dst(sock, peer)
        except OSError:
            if is_explicit:
                return None
            raise
        return None if is_explicit and target == own else target
