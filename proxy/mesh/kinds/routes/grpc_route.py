"""kind: GRPCRoute (gateway.networking.k8s.io)."""

from __future__ import annotations

from typing import Final

from proxy.mesh.kinds.policy.reference import GATEWAY
from proxy.mesh.kinds.policy.server import created_at
from proxy.mesh.kinds.routes.matching import GRPC_MATCHES, grpc_match, hosts
from proxy.mesh.kinds.routes.parent import parent_keys, parents
from proxy.mesh.kinds.routes.rule import Route, grpc_retry, read_rule, route_fields
from proxy.mesh.manifests.kind import Document, Kind, Table
from proxy.policy.routes.route import Redirect


def read(document: Document) -> Route:
    meta, spec = document.meta, document.body.need("spec")
    retry = grpc_retry(meta)
    rules = []
    for value in spec.items("rules"):
        rule = read_rule(value, meta, grpc_match, retry)
        if any(isinstance(one, Redirect) for one in rule.filters):
            raise value.need("filters").error("a gRPC route has no redirects")
        rules.append(rule)
    return Route(
        *meta.key, GATEWAY, "GRPCRoute", parents(spec, meta.namespace), hosts(spec), tuple(rules), created_at(document)
    )


GRPC_ROUTES: Final[Table[Route]] = Table("gRPC routes by parent", parent_keys)

GRPC_ROUTE: Final = Kind(
    GATEWAY,
    "GRPCRoute",
    dict.fromkeys(("v1", "v1alpha2"), route_fields(GRPC_MATCHES)),
    read,
    (GRPC_ROUTES,),
    restricts=True,
)
