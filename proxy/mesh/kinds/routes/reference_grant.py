"""kind: ReferenceGrant (gateway.networking.k8s.io): which objects of another namespace may refer to objects of this one.

Gateways require it before they follow a reference across namespaces. Linkerd's policy controller does not, so
neither do we: it is read so that typing errors in it are reported, and it is shown, but it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.policy.reference import GATEWAY
from proxy.mesh.manifests.kind import Document, Kind, Resource
from proxy.mesh.manifests.schema import NAME, TEXT, ListOf, Record


@dataclass(frozen=True, slots=True)
class ReferenceGrant(Resource):
    origins: tuple[tuple[str, str, str], ...]
    """Group, kind, namespace."""
    targets: tuple[tuple[str, str, str], ...]
    """Group, kind, name; an empty name stands for all."""


def read(document: Document) -> ReferenceGrant:
    spec = document.body.need("spec")
    return ReferenceGrant(
        *document.meta.key,
        tuple((one.text_of("group"), one.text_of("kind"), one.text_of("namespace")) for one in spec.items("from")),
        tuple((one.text_of("group"), one.text_of("kind"), one.text_of("name")) for one in spec.items("to")),
    )


_SPEC: Final = Record(
    {
        "from": ListOf(Record({"group": TEXT, "kind": TEXT, "namespace": NAME}, "group", "kind", "namespace"), 1),
        "to": ListOf(Record({"group": TEXT, "kind": TEXT, "name": NAME}, "group", "kind"), 1),
    },
    "from",
    "to",
)

REFERENCE_GRANT: Final = Kind(
    GATEWAY,
    "ReferenceGrant",
    dict.fromkeys(("v1", "v1beta1", "v1alpha2"), Record({"spec": _SPEC}, "spec")),
    read,
)
