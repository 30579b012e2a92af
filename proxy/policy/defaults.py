"""The built-in server policies, for ports until the control plane has answered, and for answers that cannot be understood.

Values made once at start. Names and meaning are those of
`LINKERD2_PROXY_INBOUND_DEFAULT_POLICY` (docs/linkerd/inbound.md, section 5, "Default policies").
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from typing import Final

from proxy.policy.meta import default_meta
from proxy.policy.routes.route import Unusable
from proxy.policy.server import (
    DETECT,
    OPAQUE,
    Authentication,
    Authorization,
    Network,
    NetworkMatch,
    ServerPolicy,
    ServerRoute,
    ServerRule,
)

DENY: Final = "deny"
ALL_UNAUTHENTICATED: Final = "all-unauthenticated"
ALL_AUTHENTICATED: Final = "all-authenticated"
CLUSTER_UNAUTHENTICATED: Final = "cluster-unauthenticated"
CLUSTER_AUTHENTICATED: Final = "cluster-authenticated"
AUDIT: Final = "audit"

NAMES: Final = (
    ALL_UNAUTHENTICATED,
    ALL_AUTHENTICATED,
    CLUSTER_UNAUTHENTICATED,
    CLUSTER_AUTHENTICATED,
    AUDIT,
    DENY,
)

_ANYWHERE: Final = (NetworkMatch(ip_network("0.0.0.0/0")), NetworkMatch(ip_network("::/0")))
_ANYONE: Final = Authentication()
_ANY_IDENTITY: Final = Authentication(needs_tls=True, any_client=False, suffixes=("",))
"""The empty suffix fits every DNS identity; URI identities never match a suffix."""

LOCALHOST: Final = Authorization(
    default_meta("localhost"), (NetworkMatch(ip_network("127.0.0.1/32")), NetworkMatch(ip_network("::1/128"))), _ANYONE
)
"""The authorization at the end of every policy's list that the control plane sends; built-in policies do not have it."""


def default_policy(name: str, cluster_networks: tuple[Network, ...], detect_timeout_s: float) -> ServerPolicy:
    """The policy of one of NAMES. ValueError for another name, or for a policy about the cluster if its networks are
    not known.
    """
    if name == DENY:
        return ServerPolicy(default_meta(DENY), OPAQUE, (), detect_timeout_s=detect_timeout_s)
    if name not in NAMES:
        raise ValueError(f"{name!r} is no default policy; one of {', '.join(NAMES)}")
    if name in (CLUSTER_UNAUTHENTICATED, CLUSTER_AUTHENTICATED, AUDIT) and not cluster_networks:
        raise ValueError(f"the default policy {name!r} needs the cluster's networks")
    is_cluster = name in (CLUSTER_UNAUTHENTICATED, CLUSTER_AUTHENTICATED)
    networks = tuple(map(NetworkMatch, cluster_networks)) if is_cluster else _ANYWHERE
    needs_identity = name in (ALL_AUTHENTICATED, CLUSTER_AUTHENTICATED)
    meta = default_meta(name)
    authorizations = (Authorization(meta, networks, _ANY_IDENTITY if needs_identity else _ANYONE),)
    route = ServerRoute(default_meta("default"), (), authorizations, (ServerRule(()),))
    return ServerPolicy(meta, DETECT, authorizations, (route,), detect_timeout_s)


def opaque_form(policy: ServerPolicy) -> ServerPolicy:
    """The same authorization for a port whose protocol is not to be detected: it has no routes, so HTTP is not spoken."""
    return replace(policy, protocol=OPAQUE, routes=())


def invalid_policy(detect_timeout_s: float) -> ServerPolicy:
    """Replaces a message that cannot be converted: TCP is refused, and so is HTTP, before its filter is reached."""
    meta = default_meta("invalid")
    rule = ServerRule((), (Unusable("invalid server policy configuration"),))
    return ServerPolicy(meta, DETECT, (), (ServerRoute(meta, (), (), (rule,)),), detect_timeout_s)
