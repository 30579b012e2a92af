"""The labels of outbound metrics (docs/linkerd/metrics.md, section 2).

Made when a stage is built, never per request; in the order in which they
are printed.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.address.addr import Addr
from proxy.metrics.cells import Labels
from proxy.policy.client import Backend, Balance, ClientPolicy, Fail
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta, default_meta
from proxy.policy.profiles.profile import ProfileRoute
from proxy.policy.routes.match import host_of

_UNKNOWN: Final = default_meta("unknown")
_FAIL: Final = default_meta("fail")

_is_dns_name: Final = re.compile(
    r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*(?!\d+\.?$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.?"
).fullmatch


def target(addr: Addr) -> Labels:
    return ("target_addr", str(addr)), ("target_ip", addr.ip), ("target_port", str(addr.port))


def tls(meta: EndpointMeta, is_local: bool) -> Labels:
    """The labels of the client side of a connection to this endpoint."""
    if is_local:
        return ("tls", "no_identity"), ("no_tls_reason", "loopback")
    if meta.tls is None:
        return ("tls", "no_identity"), ("no_tls_reason", "not_provided_by_service_discovery")
    return ("tls", "true"), ("server_id", meta.tls.server_id)


def endpoint(addr: Addr, meta: EndpointMeta, authority: str, is_local: bool) -> Labels:
    """The labels that request_*, response_* and tcp_* with peer="dst" share; `authority` is empty for forwards."""
    named = (("authority", authority.removesuffix(":80")),) if authority else ()
    return (*named, *target(addr), *tls(meta, is_local), *((f"dst_{key}", value) for key, value in sorted(meta.labels)))


def accepted(addr: Addr) -> Labels:
    """The labels of the app's own connections, by where they were going."""
    return (
        ("direction", "outbound"),
        ("peer", "src"),
        *target(addr),
        ("tls", "no_identity"),
        ("no_tls_reason", "loopback"),
    )


def parent(meta: Meta) -> Labels:
    return _named("parent", meta)


def backend(meta: Meta) -> Labels:
    """The labels of a backend; they follow those of a route, or of a parent where routes do not matter."""
    return _named("backend", meta)


def opaque_balancer(parent_: Meta, backend_: Meta, logical: str, concrete: str) -> Labels:
    """The labels of a balancer of opaque connections: `logical` is the destination's name, `concrete` the backend's."""
    return (*parent(parent_), *backend(backend_), ("logical", logical), ("concrete", concrete))


def tls_balancer(concrete: str) -> Labels:
    """The labels of a balancer of TLS connections: Linkerd has only the backend's name."""
    return (("concrete", concrete),)


def counted_backend(backend_: Backend) -> Meta:
    """The resource that a route's numbers of a backend are for. As in Linkerd, all backends that are one address count
    together, and so do all that cannot be reached: `default`/`unknown` and `default`/`fail`."""
    if isinstance(backend_.dispatch, Balance):
        return backend_.meta
    return _FAIL if isinstance(backend_.dispatch, Fail) else _UNKNOWN


def _named(prefix: str, meta: Meta) -> Labels:
    return (
        (f"{prefix}_group", meta.group),
        (f"{prefix}_kind", meta.kind),
        (f"{prefix}_namespace", meta.namespace),
        (f"{prefix}_name", meta.name),
        (f"{prefix}_port", str(meta.port) if meta.port else ""),
        (f"{prefix}_section_name", meta.section),
    )


def route(parent_meta: Meta, route_meta: Meta) -> Labels:
    """The labels of what is counted for a route; `hostname` is not among them."""
    return (
        *parent(parent_meta),
        ("route_group", route_meta.group),
        ("route_kind", route_meta.kind),
        ("route_namespace", route_meta.namespace),
        ("route_name", route_meta.name),
    )


def hostname(authority: bytes) -> str:
    """The label `hostname` of a request for this authority: its host if that is a DNS name, else empty."""
    host = host_of(authority)
    return host if len(host) <= 253 and _is_dns_name(host) else ""


def profile_route(direction: str, name: str, route: ProfileRoute) -> Labels:
    """The labels of a route of a ServiceProfile; `name` is that of the service, with its port."""
    return ("direction", direction), ("dst", name), *((f"rt_{key}", value) for key, value in route.labels)


def protocol(name: str, policy: ClientPolicy) -> Labels:
    """`name` has a value of outbound_tcp_protocol_connections_total's label: `http/1`, `http/2`, `detect`, `opaq` or
    `tls`.
    """
    return ("protocol", name), *parent(policy.meta)
