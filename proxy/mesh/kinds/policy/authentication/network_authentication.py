"""kind: NetworkAuthentication (policy.linkerd.io): a set of networks that clients come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.policy.authentication.network import NETWORK, Network, network
from proxy.mesh.kinds.policy.reference import POLICY
from proxy.mesh.manifests.kind import Document, Kind, Resource
from proxy.mesh.manifests.schema import ListOf, Record


@dataclass(frozen=True, slots=True)
class NetworkAuthentication(Resource):
    networks: tuple[Network, ...]


def read(document: Document) -> NetworkAuthentication:
    return NetworkAuthentication(*document.meta.key, tuple(map(network, document.body.need("spec").items("networks"))))


_SPEC: Final = Record({"networks": ListOf(NETWORK, at_least=1)}, "networks")

NETWORK_AUTHENTICATION: Final = Kind(
    POLICY, "NetworkAuthentication", {"v1alpha1": Record({"spec": _SPEC}, "spec")}, read
)
