"""kind: ServerAuthorization (policy.linkerd.io): which clients may reach some Servers of its namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxy.mesh.kinds.policy.authentication.identity import identity
from proxy.mesh.kinds.policy.authentication.network import NETWORK, Network, network
from proxy.mesh.kinds.policy.selector import SELECTOR, Selector, selector
from proxy.mesh.manifests.kind import Document, Kind, Resource, Table
from proxy.mesh.manifests.schema import FLAG, NAME, TEXT, ListOf, Record
from proxy.mesh.manifests.value import Value
from proxy.mesh.model import identity_of


@dataclass(frozen=True, slots=True)
class ServerAuthorization(Resource):
    server: str
    """Empty for the Servers that the selector matches."""
    selector: Selector
    networks: tuple[Network, ...] = ()
    """Empty for the cluster's networks."""
    needs_tls: bool = True
    identities: tuple[str, ...] = ()
    """The identities that clients must prove by TLS; empty for any client that speaks TLS, with or without an
    identity.
    """

    def covers(self, name: str, labels: Mapping[str, str]) -> bool:
        return self.server == name if self.server else self.selector.matches(labels)


def read(document: Document) -> ServerAuthorization:
    meta, spec = document.meta, document.body.need("spec")
    server, client = spec.need("server"), spec.need("client")
    name, selected = server.text_of("name"), server.get("selector")
    if not name and selected is None:
        raise server.error("needs a name or a selector")
    networks = tuple(map(network, client.items("networks")))
    needs_tls = not _is_set(client.get("unauthenticated"))
    identities = _identities(client, meta.namespace) if needs_tls else ()
    return ServerAuthorization(
        *meta.key, name, selector(selected) if selected is not None else Selector(), networks, needs_tls, identities
    )


def _identities(client: Value, namespace: str) -> tuple[str, ...]:
    mesh_tls = client.get("meshTLS")
    if mesh_tls is None:
        raise client.error("authorizes no client: needs `unauthenticated: true` or meshTLS")
    if _is_set(mesh_tls.get("unauthenticatedTLS")):
        return ()
    found = [identity(one) for one in mesh_tls.items("identities")]
    found += [
        identity_of(one.need("name").text(), one.text_of("namespace") or namespace)
        for one in mesh_tls.items("serviceAccounts")
    ]
    if not found:
        raise mesh_tls.error("authorizes no client: needs identities, serviceAccounts or `unauthenticatedTLS: true`")
    return tuple(found)


def _is_set(value: Value | None) -> bool:
    return value is not None and value.flag()


_CLIENT: Final = Record(
    {
        "networks": ListOf(NETWORK),
        "unauthenticated": FLAG,
        "meshTLS": Record(
            {
                "unauthenticatedTLS": FLAG,
                "identities": ListOf(TEXT),
                "serviceAccounts": ListOf(Record({"name": NAME, "namespace": NAME}, "name")),
            }
        ),
    }
)
_SPEC: Final = Record({"server": Record({"name": NAME, "selector": SELECTOR}), "client": _CLIENT}, "server", "client")

SERVER_AUTHORIZATIONS: Final[Table[ServerAuthorization]] = Table(
    "server authorizations by namespace", lambda one: (one.namespace,)
)

SERVER_AUTHORIZATION: Final = Kind(
    "policy.linkerd.io",
    "ServerAuthorization",
    dict.fromkeys(("v1beta1", "v1alpha1"), Record({"spec": _SPEC}, "spec")),
    read,
    (SERVER_AUTHORIZATIONS,),
)
