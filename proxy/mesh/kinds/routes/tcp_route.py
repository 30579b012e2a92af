"""kind: TCPRoute (gateway.networking.k8s.io): connections, whatever they speak."""

from __future__ import annotations

from typing import Final

from proxy.mesh.kinds.policy.reference import GATEWAY
from proxy.mesh.kinds.routes.parent import PARENT_REF, backend_ref_schema, parent_keys
from proxy.mesh.kinds.routes.stream_route import StreamRoute, one_rule, read_stream_route
from proxy.mesh.manifests.kind import Document, Kind, Table
from proxy.mesh.manifests.schema import ANYTHING, ListOf, Record


def read(document: Document) -> StreamRoute:
    return read_stream_route(document, GATEWAY, "TCPRoute")


_SPEC: Final = Record(
    {"parentRefs": ListOf(PARENT_REF), "rules": one_rule(backend_ref_schema(None)), "useDefaultGateways": ANYTHING},
    "rules",
)

TCP_ROUTES: Final[Table[StreamRoute]] = Table("TCP routes by parent", parent_keys)

TCP_ROUTE: Final = Kind(
    GATEWAY,
    "TCPRoute",
    dict.fromkeys(("v1", "v1alpha2"), Record({"spec": _SPEC}, "spec")),
    read,
    (TCP_ROUTES,),
    restricts=True,
)
