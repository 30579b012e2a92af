"""kinds: ReplicaSet (apps/v1) and Job (batch/v1). Only their owner matters.

A pod that a Deployment made is owned by a ReplicaSet, which is owned by the Deployment; metrics name the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.mesh.manifests.kind import Document, Kind, Resource
from proxy.mesh.manifests.schema import ANYTHING, Record


@dataclass(frozen=True, slots=True)
class Owner(Resource):
    owner: tuple[str, str] | None = None
    """Kind and name."""


def read(document: Document) -> Owner:
    return Owner(*document.meta.key, document.meta.owner)


_FIELDS: Final = Record({"spec": ANYTHING})

REPLICA_SET: Final = Kind("apps", "ReplicaSet", {"v1": _FIELDS}, read)
JOB: Final = Kind("batch", "Job", {"v1": _FIELDS}, read)
