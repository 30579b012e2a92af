"""The labels of outbound metrics (docs/linkerd/metrics.md, section 2).

Made when a stage is built, never per request; in the order in which they
are printed.
"""

from __future__ import annotations

from proxy.core.addr import Addr
from proxy.metrics.cells import Labels
from proxy.policy.client import ClientPolicy
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta


def target(addr: Addr) -> Labels:
    return ("target_addr", str(addr)), ("target_ip", addr.ip), ("target_port", str(addr.port))


def tls(meta: EndpointMeta, is_local: bool) -> Labels:
    """Of the client side of a connection to this endpoint."""
    if is_local:
        return ("tls", "no_identity"), ("no_tls_reason", "loopback")
    if meta.tls is None:
        return ("tls", "no_identity"), ("no_tls_reason", "not_provided_by_service_discovery")
    return ("tls", "true"), ("server_id", meta.tls.server_id)


def endpoint(addr: Addr, meta: EndpointMeta, authority: str, is_local: bool) -> Labels:
    """What request_*, response_* and tcp_* with peer="dst" share; `authority` is empty for forwards."""
    named = (("authority", authority.removesuffix(":80")),) if authority else ()
    return (*named, *target(addr), *tls(meta, is_local), *((f"dst_{key}", value) for key, value in sorted(meta.labels)))


def accepted(addr: Addr) -> Labels:
    """Of the app's own connections, by where they wanted to go."""
    return (
        ("direction", "outbound"),
        ("peer", "src"),
        *target(addr),
        ("tls", "no_identity"),
        ("no_tls_reason", "loopback"),
    )


def parent(meta: Meta) -> Labels:
    return (
        ("parent_group", meta.group),
        ("parent_kind", meta.kind),
        ("parent_namespace", meta.namespace),
        ("parent_name", meta.name),
        ("parent_port", str(meta.port) if meta.port else ""),
        ("parent_section_name", meta.section),
    )


def protocol(name: str, policy: ClientPolicy) -> Labels:
    """`name` as outbound_tcp_protocol_connections_total says it: `http/1`, `http/2`, `detect`, `opaq` or `tls`."""
    return ("protocol", name), *parent(policy.meta)
