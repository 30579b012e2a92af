"""Authorization: who may reach a server or a route (docs/linkerd/inbound.md, section 5, "Authorization semantics").

Pure, and asked once per connection and route: a client's address and
identity do not change while its connection lives. The first authorization
in list order that matches wins and names the `authz_*` labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from proxy.policy.server import GRPC, HTTP_1, HTTP_2, Authentication, Authorization, NetworkMatch, ServerPolicy


class Client:
    """The client of a connection as authorization sees it: its address, and the identity that TLS proved."""

    __slots__ = ("ip", "is_tls", "identity")

    def __init__(self, ip: str, is_tls: bool, identity: str) -> None:
        """`identity` is the client's id in lower case, empty without a client certificate; `ip` is an IP address's text."""
        self.ip: Final = ip_address(ip)
        self.is_tls: Final = is_tls
        """Whether TLS ended here. TLS for another name, which passes through, does not count."""
        self.identity: Final = identity


def find_authorization(authorizations: Iterable[Authorization], client: Client) -> Authorization | None:
    """The first authorization that fits this client; None if it is refused."""
    for authorization in authorizations:
        if _is_authenticated(authorization.authentication, client) and _is_in_any(authorization.networks, client):
            return authorization
    return None


def find_tcp_authorization(policy: ServerPolicy, client: Client) -> Authorization | None:
    """The same for a connection that is forwarded as bytes: ports that speak HTTP by policy take none."""
    if policy.protocol in (HTTP_1, HTTP_2, GRPC):
        return None
    return find_authorization(policy.authorizations, client)


def _is_in_any(networks: tuple[NetworkMatch, ...], client: Client) -> bool:
    ip = client.ip
    return any(ip in match.net and not any(ip in one for one in match.excepted) for match in networks)


def _is_authenticated(needed: Authentication, client: Client) -> bool:
    if not needed.needs_tls:
        return True
    if not client.is_tls:
        return False
    if needed.any_client:
        return True
    identity = client.identity
    if not identity:
        return False
    if identity in needed.identities:
        return True
    # A URI identity's labels are not a hierarchy of ours: suffixes, the one that matches every name included, never apply.
    return "://" not in identity and any(identity.endswith(suffix) for suffix in needed.suffixes)
