"""kind: EgressNetwork (policy.linkerd.io): destinations outside of the mesh, and whether they may be reached without a
route.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from proxy.mesh.kinds import annotation
from proxy.mesh.kinds.policy.authentication.network import NETWORK, Network, network
from proxy.mesh.kinds.policy.reference import POLICY
from proxy.mesh.kinds.policy.server import created_at
from proxy.mesh.kinds.routes.rule import grpc_retry, http_retry, timeouts
from proxy.mesh.manifests.kind import Document, Kind, Resource, Table
from proxy.mesh.manifests.schema import ListOf, Record, Text
from proxy.mesh.model import DEFAULT_OPAQUE_PORTS, PortSet
from proxy.policy.client import Retry, Timeouts

EGRESS_NAMESPACE: Final = "linkerd-egress"
"""Networks of this namespace apply to clients of namespaces that have none of their own."""


@dataclass(frozen=True, slots=True)
class EgressNetwork(Resource):
    networks: tuple[Network, ...]
    """If it is empty, everything outside of the cluster's networks."""
    is_allowed: bool
    opaque_ports: PortSet = DEFAULT_OPAQUE_PORTS
    timeouts: Timeouts = Timeouts()
    http_retry: Retry | None = None
    grpc_retry: Retry | None = None
    created_at: str = ""

    def size_of_match(self, ip: str) -> int | None:
        """How many addresses the narrowest network that contains `ip` has; None if none contains it."""
        address = ip_address(ip)
        sizes = [
            one.net.num_addresses - sum(net.num_addresses for net in one.excepted)
            for one in self.networks
            if address in one.net and not any(address in net for net in one.excepted)
        ]
        return min(sizes, default=None)


def read(document: Document) -> EgressNetwork:
    meta, spec = document.meta, document.body.need("spec")
    opaque = meta.annotations.get(annotation.OPAQUE_PORTS)
    return EgressNetwork(
        *meta.key,
        tuple(map(network, spec.items("networks"))),
        spec.need("trafficPolicy").text() == "Allow",
        DEFAULT_OPAQUE_PORTS if opaque is None else annotation.port_set(opaque),
        timeouts(meta),
        http_retry(meta),
        grpc_retry(meta),
        created_at(document),
    )


_SPEC: Final = Record({"networks": ListOf(NETWORK), "trafficPolicy": Text("Allow", "Deny")}, "trafficPolicy")

EGRESS_NETWORKS: Final[Table[EgressNetwork]] = Table("egress networks by namespace", lambda one: (one.namespace,))

EGRESS_NETWORK: Final = Kind(
    POLICY, "EgressNetwork", {"v1alpha1": Record({"spec": _SPEC}, "spec")}, read, (EGRESS_NETWORKS,), restricts=True
)
