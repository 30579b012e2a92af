"""kind: MeshTLSAuthentication (policy.linkerd.io): a set of client identities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.policy.authentication.identity import identity, namespace_identities
from proxy.mesh.kinds.policy.reference import NAMESPACED, POLICY, reference
from proxy.mesh.manifests.kind import Document, Kind, Resource
from proxy.mesh.manifests.schema import TEXT, ListOf, Record
from proxy.mesh.manifests.value import Value
from proxy.mesh.model import identity_of


@dataclass(frozen=True, slots=True)
class MeshTlsAuthentication(Resource):
    identities: tuple[str, ...]
    """Exact ones, `*.suffix`, or `*`."""


def read(document: Document) -> MeshTlsAuthentication:
    meta, spec = document.meta, document.body.need("spec")
    found = [identity(one) for one in spec.items("identities")]
    found += [_of_reference(one, meta.namespace) for one in spec.items("identityRefs")]
    if not found:
        raise spec.error("authenticates no client: needs identities or identityRefs")
    return MeshTlsAuthentication(*meta.key, tuple(found))


def _of_reference(item: Value, namespace: str) -> str:
    found = reference(item, namespace, ("", "ServiceAccount"), ("", "Namespace"))
    if found.kind == "Namespace":
        return namespace_identities(found.name)
    return identity_of(found.name, found.namespace)


_SPEC: Final = Record({"identities": ListOf(TEXT), "identityRefs": ListOf(NAMESPACED)})

MESH_TLS_AUTHENTICATION: Final = Kind(
    POLICY, "MeshTLSAuthentication", {"v1alpha1": Record({"spec": _SPEC}, "spec")}, read
)
