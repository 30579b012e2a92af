"""ServerPolicy: the control plane's policy for one inbound port (docs/linkerd/inbound.md, sections 5 to 7).

A value; replaced whole by each message. `defaults.py` makes the built-in ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from proxy.policy.meta import Meta
from proxy.policy.protocol import DETECT as DETECT
from proxy.policy.protocol import GRPC as GRPC
from proxy.policy.protocol import HTTP_1 as HTTP_1
from proxy.policy.protocol import HTTP_2 as HTTP_2
from proxy.policy.protocol import OPAQUE as OPAQUE
from proxy.policy.protocol import TLS as TLS
from proxy.policy.routes.route import Filter, GrpcMatch, HostMatch, HttpMatch
from proxy.policy.routes.table import RouteTable

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class NetworkMatch:
    net: Network
    excepted: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class Authentication:
    """The clients that are let in: all; or all with mesh TLS; or those with certain identities."""

    needs_tls: bool = False
    any_client: bool = True
    """Without needs_tls: every client. With it: also clients with TLS and without a certificate."""
    identities: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    """As `.ns.svc`; the empty text matches every DNS identity. Never applies to URI identities."""


@dataclass(frozen=True, slots=True)
class Authorization:
    meta: Meta
    networks: tuple[NetworkMatch, ...]
    authentication: Authentication


@dataclass(frozen=True, slots=True)
class ServerRule:
    matches: tuple[HttpMatch | GrpcMatch, ...]
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerRoute:
    """Its authorizations already include the server's."""

    meta: Meta
    hosts: tuple[HostMatch, ...]
    authorizations: tuple[Authorization, ...]
    rules: tuple[ServerRule, ...]
    is_grpc: bool = False


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Requests per second; 0 stands for no limit."""

    meta: Meta | None = None
    total: int = 0
    per_identity: int = 0
    overrides: tuple[tuple[frozenset[str], int], ...] = ()


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    meta: Meta
    protocol: str
    """DETECT, OPAQUE, TLS, HTTP_1, HTTP_2 or GRPC."""
    authorizations: tuple[Authorization, ...]
    """Authorizations of TCP connections; empty for HTTP_1, HTTP_2 and GRPC, which refuse all other TCP."""
    routes: tuple[ServerRoute, ...] = ()
    detect_timeout_s: float = 10.0
    rate_limit: RateLimit | None = None
    table: RouteTable | None = field(default=None, compare=False, repr=False)
    """The index of `routes`, if it was made with the policy because there may be thousands."""
