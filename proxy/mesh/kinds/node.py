"""kind: Node (v1). Only its zone matters: clients in a zone prefer endpoints in the same zone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.manifests.kind import Document, Kind, Resource
from proxy.mesh.manifests.schema import ANYTHING, Record

_ZONE: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Node(Resource):
    zone: str = ""


def read(document: Document) -> Node:
    return Node(*document.meta.key, document.meta.labels.get(_ZONE, ""))


NODE: Final = Kind("", "Node", {"v1": Record({"spec": ANYTHING})}, read, is_namespaced=False)
