"""kind: HTTPRoute, of the Gateway API and of Linkerd (policy.linkerd.io): they differ in versions only."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final

from proxy.mesh.kinds.policy.reference import GATEWAY, POLICY
from proxy.mesh.kinds.policy.server import created_at
from proxy.mesh.kinds.routes.filters import FILTERS
from proxy.mesh.kinds.routes.matching import HOSTNAMES, HTTP_MATCHES, hosts, http_match
from proxy.mesh.kinds.routes.parent import PARENT_REF, backend_ref_schema, parents
from proxy.mesh.kinds.routes.rule import TIMEOUTS, Route, http_retry, read_rule
from proxy.mesh.manifests.kind import Document, Kind, Table
from proxy.mesh.manifests.schema import ANYTHING, TEXT, ListOf, Record


def reader(group: str) -> Callable[[Document], Route]:
    def read(document: Document) -> Route:
        meta, spec = document.meta, document.body.need("spec")
        retry = http_retry(meta)
        return Route(
            *meta.key,
            group,
            "HTTPRoute",
            parents(spec, meta.namespace),
            hosts(spec),
            tuple(read_rule(one, meta, http_match, retry) for one in spec.items("rules")),
            created_at(document),
        )

    return read


def parent_keys(route: Route) -> Iterable[Hashable]:
    return {(one.kind, one.namespace, one.name) for one in route.parents}


_RULE: Final = Record(
    {
        "name": TEXT,
        "matches": HTTP_MATCHES,
        "filters": FILTERS,
        "backendRefs": ListOf(backend_ref_schema(FILTERS)),
        "timeouts": TIMEOUTS,
        **dict.fromkeys(("sessionPersistence", "retry"), ANYTHING),
    }
)
_SPEC: Final = Record(
    {"parentRefs": ListOf(PARENT_REF), "hostnames": HOSTNAMES, "rules": ListOf(_RULE), "useDefaultGateways": ANYTHING}
)
_FIELDS: Final = Record({"spec": _SPEC}, "spec")

POLICY_HTTP_ROUTES: Final[Table[Route]] = Table("HTTP routes of Linkerd by parent", parent_keys)
GATEWAY_HTTP_ROUTES: Final[Table[Route]] = Table("HTTP routes of the Gateway API by parent", parent_keys)
"""Under (kind, namespace, name) of a parent."""

POLICY_HTTP_ROUTE: Final = Kind(
    POLICY,
    "HTTPRoute",
    dict.fromkeys(("v1beta3", "v1beta2", "v1beta1", "v1alpha1"), _FIELDS),
    reader(POLICY),
    (POLICY_HTTP_ROUTES,),
    restricts=True,
)
GATEWAY_HTTP_ROUTE: Final = Kind(
    GATEWAY,
    "HTTPRoute",
    dict.fromkeys(("v1", "v1beta1", "v1alpha2"), _FIELDS),
    reader(GATEWAY),
    (GATEWAY_HTTP_ROUTES,),
    restricts=True,
)
