"""kind: AuthorizationPolicy (policy.linkerd.io): which authentications together allow a client to reach a Server, a route or a namespace."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.policy.reference import GATEWAY, LOCAL, NAMESPACED, POLICY, Reference, reference
from proxy.mesh.manifests.kind import Document, Kind, Resource, Table
from proxy.mesh.manifests.schema import ListOf, Record
from proxy.mesh.manifests.value import Value

_TARGETS: Final = (
    (POLICY, "Server"),
    ("", "Namespace"),
    (POLICY, "HTTPRoute"),
    (GATEWAY, "HTTPRoute"),
    (GATEWAY, "GRPCRoute"),
)
_MESH_TLS: Final = (POLICY, "MeshTLSAuthentication")
_NETWORK: Final = (POLICY, "NetworkAuthentication")
_ACCOUNT: Final = ("", "ServiceAccount")


@dataclass(frozen=True, slots=True)
class AuthorizationPolicy(Resource):
    target: Reference
    clients: Reference | None = None
    """A MeshTLSAuthentication or a ServiceAccount; None: no TLS is needed."""
    networks: Reference | None = None
    """A NetworkAuthentication; None: from anywhere."""


def read(document: Document) -> AuthorizationPolicy:
    meta, spec = document.meta, document.body.need("spec")
    given = spec.need("targetRef")
    target = reference(given, meta.namespace, *_TARGETS)
    if target.kind == "Namespace" and target.name != meta.namespace:
        raise given.need("name").error(f"a policy can only speak of its own namespace, {meta.namespace}")
    clients: Reference | None = None
    networks: Reference | None = None
    for item in spec.items("requiredAuthenticationRefs"):
        found = reference(item, meta.namespace, _MESH_TLS, _NETWORK, _ACCOUNT)
        if found.kind == "NetworkAuthentication":
            networks = _only(networks, found, item)
        else:
            clients = _only(clients, found, item)
    return AuthorizationPolicy(*meta.key, target, clients, networks)


def _only(before: Reference | None, found: Reference, item: Value) -> Reference:
    if before is not None:
        raise item.error("there can be one reference to identities and one to networks")
    return found


def _target_key(policy: AuthorizationPolicy) -> Iterable[Hashable]:
    return (policy.target,)


_SPEC: Final = Record(
    {"targetRef": LOCAL, "requiredAuthenticationRefs": ListOf(NAMESPACED)}, "targetRef", "requiredAuthenticationRefs"
)

POLICIES_BY_TARGET: Final[Table[AuthorizationPolicy]] = Table("authorization policies by target", _target_key)
"""Keyed by a Reference, whose namespace is the policy's own."""

AUTHORIZATION_POLICY: Final = Kind(
    POLICY, "AuthorizationPolicy", {"v1alpha1": Record({"spec": _SPEC}, "spec")}, read, (POLICIES_BY_TARGET,)
)
