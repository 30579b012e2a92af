"""Arrived: an accepted connection whose client is known."""

from __future__ import annotations

from typing import Final

from proxy.core.address.addr import Addr
from proxy.core.log import event
from proxy.inbound import labels
from proxy.inbound.labels import Tls
from proxy.inbound.policies import PortPolicy
from proxy.metrics import Labels
from proxy.policy.authz import Client
from proxy.policy.meta import Meta


class Arrived:
    """What authorization needs to know of a connection, and what its counters and log lines name."""

    __slots__ = ("peer", "target", "tls", "client", "port")

    def __init__(self, peer: Addr, target: Addr, tls: Tls, port: PortPolicy) -> None:
        self.peer: Final = peer
        self.target: Final = target
        """Where in this workload it goes: the original destination, or what a transport header says."""
        self.tls: Final = tls
        self.client: Final = Client(peer.ip, tls.is_established, tls.client_id)
        self.port: Final = port

    def server_labels(self) -> Labels:
        return labels.server(self.port.policy.meta, self.port.port)

    def event(self, route: Meta | None = None, authz: Meta | None = None) -> dict[str, object]:
        """The fields of a log line about a decision."""
        fields: dict[str, object] = _named("server", self.port.policy.meta)
        if route is not None:
            fields |= _named("route", route)
        fields |= {"client.tls": self.tls, "client.ip": self.peer.ip}
        if authz is not None:
            fields |= _named("authz", authz)
        return event("inbound", f"server{{port={self.port.port}}}", **fields)


def _named(what: str, meta: Meta) -> dict[str, object]:
    return {f"{what}.group": meta.group, f"{what}.kind": meta.kind, f"{what}.name": meta.name}
