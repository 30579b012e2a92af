"""The authorizations of a Server or of a route as messages, from the policy objects that refer to it.

Shapes: the recording of the control plane in tests/data/control-plane. An AuthorizationPolicy that refers to an authentication which is not there allows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.api import inbound_pb2 as pb
from proxy.api import meta_pb2
from proxy.mesh.kinds.policy.authentication.identity import ANY_IDENTITY
from proxy.mesh.kinds.policy.authentication.mesh_tls_authentication import MESH_TLS_AUTHENTICATION
from proxy.mesh.kinds.policy.authentication.network import Cidr, Network
from proxy.mesh.kinds.policy.authentication.network_authentication import NETWORK_AUTHENTICATION
from proxy.mesh.kinds.policy.authorization_policy import POLICIES_BY_TARGET, AuthorizationPolicy
from proxy.mesh.kinds.policy.reference import POLICY, Reference
from proxy.mesh.kinds.policy.server import Server
from proxy.mesh.kinds.policy.server_authorization import SERVER_AUTHORIZATIONS, ServerAuthorization
from proxy.mesh.model import identity_of
from proxy.mesh.net import ANYWHERE, CLUSTER_NETWORKS, network_message
from proxy.mesh.store.snapshot import View

_ANYWHERE = tuple(Network(net) for net in ANYWHERE)
_CLUSTER = tuple(Network(net) for net in CLUSTER_NETWORKS)


def server_authorizations(view: View, server: Server) -> list[pb.Authz]:
    """All authorizations of a server, its own access policy last."""
    labels = dict(server.labels)
    found = [
        _of_server_authorization(one)
        for one in view.found(SERVER_AUTHORIZATIONS, server.namespace)
        if one.covers(server.name, labels)
    ]
    for target in (
        Reference(POLICY, "Server", server.namespace, server.name),
        Reference("", "Namespace", server.namespace, server.namespace),
    ):
        found += authorizations_for(view, target)
    return [*found, *default_authorizations(server.access_policy)]


def authorizations_for(view: View, target: Reference) -> list[pb.Authz]:
    """The authorizations that AuthorizationPolicies give for a target."""
    return [
        message
        for policy in view.found(POLICIES_BY_TARGET, target)
        if (message := _of_policy(view, policy)) is not None
    ]


def default_authorizations(policy: str) -> list[pb.Authz]:
    """The authorizations of one of model.DEFAULT_POLICIES; `deny` has none."""
    if policy == "deny":
        return []
    networks = _CLUSTER if policy.startswith("cluster-") else _ANYWHERE
    identities = (ANY_IDENTITY,) if policy.endswith("-authenticated") else None
    message = _authorization(networks, identities)
    message.metadata.default = policy
    message.labels.update({"group": "", "kind": "default", "name": policy})
    return [message]


def probe_authorizations(networks: Iterable[Cidr]) -> list[pb.Authz]:
    """Lets in requests from these networks for the path of a declared probe."""
    message = _authorization([Network(net) for net in networks], None)
    message.metadata.default = "probe"
    message.labels.update({"group": "", "kind": "default", "name": "probe"})
    return [message]


def _of_server_authorization(one: ServerAuthorization) -> pb.Authz:
    message = _authorization(one.networks or _CLUSTER, one.identities if one.needs_tls else None)
    if one.needs_tls and not one.identities:
        message.authentication.meshTLS.unauthenticated.SetInParent()
    return _named(message, "serverauthorization", one.name)


def _of_policy(view: View, policy: AuthorizationPolicy) -> pb.Authz | None:
    identities: tuple[str, ...] | None = None
    networks: tuple[Network, ...] = _ANYWHERE
    clients, origin = policy.clients, policy.networks
    if clients is not None and clients.kind == "ServiceAccount":
        identities = (identity_of(clients.name, clients.namespace),)
    elif clients is not None:
        authentication = view.one(MESH_TLS_AUTHENTICATION, (clients.namespace, clients.name))
        if authentication is None:
            return None
        identities = authentication.identities
    if origin is not None:
        found = view.one(NETWORK_AUTHENTICATION, (origin.namespace, origin.name))
        if found is None:
            return None
        networks = found.networks
    return _named(_authorization(networks, identities), "authorizationpolicy", policy.name)


def _named(message: pb.Authz, kind: str, name: str) -> pb.Authz:
    message.metadata.resource.CopyFrom(meta_pb2.Resource(group=POLICY, kind=kind, name=name))
    message.labels.update({"group": POLICY, "kind": kind, "name": name})
    return message


def _authorization(networks: Iterable[Network], identities: tuple[str, ...] | None) -> pb.Authz:
    """With `identities` None no TLS is needed."""
    message = pb.Authz(networks=[_network(one) for one in networks])
    if identities is None:
        message.authentication.unauthenticated.SetInParent()
    elif identities:
        clients = message.authentication.meshTLS.identities
        for one in identities:
            if one == ANY_IDENTITY or one.startswith("*."):
                clients.suffixes.append(pb.IdentitySuffix(parts=one.split(".")[1:]))
            else:
                clients.identities.append(pb.Identity(name=one))
    return message


def _network(network: Network) -> pb.Network:
    message = pb.Network(net=network_message(network.net))
    getattr(message, "except").extend(network_message(one) for one in network.excepted)
    return message
