"""Names, defaults and sets of ports that the whole control plane uses, with the meaning that Kubernetes and Linkerd give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLUSTER_DOMAIN: Final = "cluster.local"
MESH_NAMESPACE: Final = "linkerd"
"""Where Linkerd would run; part of every identity."""

IDENTITY_SUFFIX: Final = f"serviceaccount.identity.{MESH_NAMESPACE}.{CLUSTER_DOMAIN}"
DEFAULT_INBOUND_PORT: Final = 4143

DEFAULT_POLICIES: Final = (
    "all-unauthenticated",
    "all-authenticated",
    "cluster-unauthenticated",
    "cluster-authenticated",
    "audit",
    "deny",
)
"""What an inbound port without a policy of its own may allow (docs/linkerd/inbound.md, section 5)."""

Key = tuple[str, str]
"""Namespace and name."""


def identity_of(service_account: str, namespace: str) -> str:
    """The DNS name of a service account, as Linkerd writes it (docs/linkerd/identity-and-tls.md, section 5)."""
    return f"{service_account}.{namespace}.{IDENTITY_SUFFIX}"


SERVER_IDENTITY: Final = identity_of("sponson-mesh", MESH_NAMESPACE)
"""The name in the control plane's own certificate."""


@dataclass(frozen=True, slots=True)
class PortSet:
    """Inclusive ranges of port numbers."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, port: int) -> bool:
        return any(low <= port <= high for low, high in self.ranges)


NO_PORTS: Final = PortSet()

DEFAULT_OPAQUE_PORTS: Final = PortSet(tuple((port, port) for port in (25, 587, 3306, 4444, 5432, 6379, 9300, 11211)))
"""Ports of protocols in which the server speaks first (docs/linkerd/configuration.md, section 5)."""
