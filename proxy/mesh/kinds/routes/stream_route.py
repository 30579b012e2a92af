"""Routes of connections, as TLSRoute and TCPRoute have them: one rule each, with backends and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.mesh.kinds.policy.server import created_at
from proxy.mesh.kinds.routes.matching import hosts
from proxy.mesh.kinds.routes.parent import SERVER, BackendRef, Parent, backend_ref, parents
from proxy.mesh.manifests.kind import Document, Resource
from proxy.mesh.manifests.schema import TEXT, ListOf, Record
from proxy.policy.routes.route import HostMatch


@dataclass(frozen=True, slots=True)
class StreamRoute(Resource):
    group: str
    kind: str
    parents: tuple[Parent, ...]
    snis: tuple[HostMatch, ...]
    backends: tuple[BackendRef, ...] = ()
    """Empty for the resource that the route is attached to."""
    created_at: str = ""


def read_stream_route(document: Document, group: str, kind: str) -> StreamRoute:
    meta, spec = document.meta, document.body.need("spec")
    attached = parents(spec, meta.namespace)
    if any(one.kind == SERVER for one in attached):
        raise spec.need("parentRefs").error(
            f"a {kind} cannot be attached to a Server: there are HTTPRoute and GRPCRoute"
        )
    [rule] = spec.items("rules")
    return StreamRoute(
        *meta.key,
        group,
        kind,
        attached,
        hosts(spec),
        tuple(backend_ref(one, meta.namespace) for one in rule.items("backendRefs")),
        created_at(document),
    )


def one_rule(backend: Record) -> ListOf:
    """The schema of a list with one rule, because proxies know only one; more would be left out silently."""
    return ListOf(Record({"name": TEXT, "backendRefs": ListOf(backend)}), at_least=1, at_most=1)
