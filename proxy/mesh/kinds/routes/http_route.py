"""kind: HTTPRoute, of the Gateway API and of Linkerd (policy.linkerd.io): they differ in versions only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.mesh.kinds.policy.reference import GATEWAY, POLICY
from proxy.mesh.kinds.policy.server import created_at
from proxy.mesh.kinds.routes.matching import HTTP_MATCHES, hosts, http_match
from proxy.mesh.kinds.routes.parent import parent_keys, parents
from proxy.mesh.kinds.routes.rule import TIMEOUTS, Route, http_retry, read_rule, route_fields
from proxy.mesh.manifests.kind import Document, Kind, Table
from proxy.mesh.manifests.schema import ANYTHING


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


_FIELDS: Final = route_fields(HTTP_MATCHES, timeouts=TIMEOUTS, retry=ANYTHING)

POLICY_HTTP_ROUTES: Final[Table[Route]] = Table("HTTP routes of Linkerd by parent", parent_keys)
GATEWAY_HTTP_ROUTES: Final[Table[Route]] = Table("HTTP routes of the Gateway API by parent", parent_keys)
"""Keyed by (kind, namespace, name) of a parent."""

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
