"""What a route is attached to (`parentRefs`) and what it leads to (`backendRefs`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.mesh.kinds.policy.reference import GATEWAY, POLICY
from proxy.mesh.manifests.schema import NAME, PORT, TEXT, Number, Record, Schema, shown
from proxy.mesh.manifests.value import Value
from proxy.policy.routes.route import Filter

SERVER: Final = "Server"
SERVICE: Final = "Service"
EGRESS_NETWORK: Final = "EgressNetwork"

_PARENTS: Final = {
    (POLICY, SERVER): SERVER,
    ("", SERVICE): SERVICE,
    ("core", SERVICE): SERVICE,
    (POLICY, EGRESS_NETWORK): EGRESS_NETWORK,
}
_OTHERS: Final = ((GATEWAY, "Gateway"), (GATEWAY, "ListenerSet"), (GATEWAY, "XListenerSet"))
"""Kinds that concern gateways, which read the same routes and are not ours."""

_WEIGHT: Final = 1_000_000

PARENT_REF: Final = Record(
    {"group": TEXT, "kind": TEXT, "namespace": NAME, "name": NAME, "sectionName": TEXT, "port": PORT}, "name"
)


@dataclass(frozen=True, slots=True)
class Parent:
    kind: str
    """SERVER, SERVICE or EGRESS_NETWORK."""
    namespace: str
    name: str
    port: int = 0
    """0 stands for every port."""


@dataclass(frozen=True, slots=True)
class BackendRef:
    kind: str
    """SERVICE or EGRESS_NETWORK; empty if it cannot be used, and `fault` says why."""
    namespace: str
    name: str
    port: int = 0
    weight: int = 1
    filters: tuple[Filter, ...] = ()
    fault: str = ""


class Attached(Protocol):
    @property
    def parents(self) -> tuple[Parent, ...]: ...


def parent_keys(route: Attached) -> Iterable[Hashable]:
    """Keyed by (kind, namespace, name) of each parent."""
    return {(one.kind, one.namespace, one.name) for one in route.parents}


def parents(spec: Value, namespace: str) -> tuple[Parent, ...]:
    """The references that concern proxies; ManifestError for one to an unknown kind."""
    return tuple(found for item in spec.items("parentRefs") if (found := _parent(item, namespace)) is not None)


def _parent(item: Value, namespace: str) -> Parent | None:
    group, kind = item.text_of("group", GATEWAY), item.text_of("kind", "Gateway")
    known = _PARENTS.get((group, kind))
    if known is None:
        if (group, kind) in _OTHERS:
            return None
        raise item.error(
            f"{shown(f'{kind} ({group})')} is no parent of a route: there are Service, Server ({POLICY}), EgressNetwork ({POLICY})"
        )
    where = item.text_of("namespace") or namespace
    port = item.get("port")
    if known == SERVER:
        if where != namespace:
            raise item.need("namespace").error("a route can only be attached to a Server of its own namespace")
        if port is not None:
            raise port.error("a route is attached to a whole Server, not to a port of it")
    if item.get("sectionName") is not None:
        raise item.need("sectionName").error("only gateways have sections")
    return Parent(known, where, item.need("name").text(), port.port() if port is not None else 0)


def backend_ref_schema(filters: Schema | None) -> Record:
    fields: dict[str, Schema] = {
        "group": TEXT, "kind": TEXT, "namespace": NAME, "name": NAME, "port": PORT, "weight": Number(0, _WEIGHT),
    }  # fmt: skip
    if filters is not None:
        fields["filters"] = filters
    return Record(fields, "name")


def backend_ref(item: Value, namespace: str, filters: Iterable[Filter] = ()) -> BackendRef:
    """A backend that cannot be served fails the requests that it gets, as in Linkerd: its share of the traffic goes
    nowhere else.
    """
    group, kind = item.text_of("group"), item.text_of("kind", SERVICE)
    where, name = item.text_of("namespace") or namespace, item.need("name").text()
    weight, given = item.get("weight"), item.get("port")
    share = weight.number(0, _WEIGHT) if weight is not None else 1
    port = given.port() if given is not None else 0
    known = _PARENTS.get((group, kind), "")
    fault = ""
    if known not in (SERVICE, EGRESS_NETWORK):
        known, fault = "", f"unsupported backend type {group or 'core'} {kind}"
    elif known == SERVICE and not port:
        known, fault = "", f"missing port for backend Service {name}"
    return BackendRef(known, where, name, port, share, tuple(filters), fault)
