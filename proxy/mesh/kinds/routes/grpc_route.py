"""kind: GRPCRoute (gateway.networking.k8s.io)."""

from __future__ import annotations

from typing import Final

from proxy.mesh.kinds.policy.reference import GATEWAY
from proxy.mesh.kinds.policy.server import created_at
from proxy.mesh.kinds.routes.filters import FILTERS
from proxy.mesh.kinds.routes.http_route import parent_keys
from proxy.mesh.kinds.routes.matching import GRPC_MATCHES, HOSTNAMES, grpc_match, hosts
from proxy.mesh.kinds.routes.parent import PARENT_REF, backend_ref_schema, parents
from proxy.mesh.kinds.routes.rule import Route, grpc_retry, read_rule
from proxy.mesh.manifests.kind import Document, Kind, Table
from proxy.mesh.manifests.schema import ANYTHING, TEXT, ListOf, Record
from proxy.policy.route import Redirect


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


_RULE: Final = Record(
    {
        "name": TEXT,
        "matches": GRPC_MATCHES,
        "filters": FILTERS,
        "backendRefs": ListOf(backend_ref_schema(FILTERS)),
        "sessionPersistence": ANYTHING,
    }
)
_SPEC: Final = Record(
    {"parentRefs": ListOf(PARENT_REF), "hostnames": HOSTNAMES, "rules": ListOf(_RULE), "useDefaultGateways": ANYTHING}
)

GRPC_ROUTES: Final[Table[Route]] = Table("gRPC routes by parent", parent_keys)

GRPC_ROUTE: Final = Kind(
    GATEWAY,
    "GRPCRoute",
    dict.fromkeys(("v1", "v1alpha2"), Record({"spec": _SPEC}, "spec")),
    read,
    (GRPC_ROUTES,),
    restricts=True,
)
