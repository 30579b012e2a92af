"""kind: Namespace (v1): its annotations apply to the objects in it that do not have their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.workloads.workload import Config, config_of
from proxy.mesh.manifests.kind import Document, Kind, Resource
from proxy.mesh.manifests.schema import ANYTHING, Record


@dataclass(frozen=True, slots=True)
class Namespace(Resource):
    config: Config = Config()


def read(document: Document) -> Namespace:
    return Namespace(*document.meta.key, config_of(document.meta))


NAMESPACE: Final = Kind("", "Namespace", {"v1": Record({"spec": ANYTHING})}, read, is_namespaced=False)
