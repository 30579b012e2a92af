"""Labels of the inbound side's metrics, in the order in which they are printed (docs/linkerd/metrics.md, section 2).

Pure functions, called when a connection is understood or a route is first used, never per request.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.core.address.addr import Addr
from proxy.policy.meta import Meta

Labels = tuple[tuple[str, str], ...]

ESTABLISHED: Final = "established"
PASSED_THROUGH: Final = "passed through"
NONE: Final = "none"

NO_TLS_FROM_REMOTE: Final = "no_tls_from_remote"
PORT_SKIPPED: Final = "port_skipped"


class Tls(NamedTuple):
    """What is known of an accepted connection's TLS (docs/linkerd/identity-and-tls.md, section 7)."""

    state: str
    client_id: str = ""
    """Set only if ESTABLISHED; empty without a client certificate."""
    sni: str = ""
    """Set only if PASSED_THROUGH: TLS for another name, which we do not terminate."""
    reason: str = ""
    """Set only if NONE."""

    @property
    def is_established(self) -> bool:
        return self.state == ESTABLISHED

    @property
    def is_meshed(self) -> bool:
        """Whether the client has a proven identity. Only such a client gets the reasons of failures."""
        return self.state == ESTABLISHED and bool(self.client_id)

    @property
    def labels(self) -> Labels:
        if self.state == ESTABLISHED:
            return (("tls", "true"), ("client_id", self.client_id))
        if self.state == PASSED_THROUGH:
            return (("tls", "opaque"), ("sni", self.sni))
        return (("tls", "no_identity"), ("no_tls_reason", self.reason))

    def __str__(self) -> str:
        if self.state == ESTABLISHED:
            return f"established, client {self.client_id or 'without a certificate'}"
        return f"passed through to {self.sni}" if self.state == PASSED_THROUGH else f"none ({self.reason})"


APP: Final[Labels] = (("direction", "inbound"), ("peer", "dst"), ("tls", "no_identity"), ("no_tls_reason", "loopback"))
"""Connections that we make to the app."""


def target(addr: Addr) -> Labels:
    return (("target_addr", str(addr)), ("target_ip", addr.ip), ("target_port", str(addr.port)))


def server(meta: Meta, port: int) -> Labels:
    return (("srv_group", meta.group), ("srv_kind", meta.kind), ("srv_name", meta.name), ("srv_port", str(port)))


def parent(meta: Meta, port: int) -> Labels:
    """The server, as the families of inbound routes call it."""
    return (
        ("parent_group", meta.group),
        ("parent_kind", meta.kind),
        ("parent_name", meta.name),
        ("parent_port", str(port)),
    )


def route(meta: Meta) -> Labels:
    return (("route_group", meta.group), ("route_kind", meta.kind), ("route_name", meta.name))


def authorization(meta: Meta) -> Labels:
    return (("authz_group", meta.group), ("authz_kind", meta.kind), ("authz_name", meta.name))


def accepted(addr: Addr, tls: Tls, server_labels: Labels) -> Labels:
    """The labels of a connection's Meter."""
    return (("direction", "inbound"), ("peer", "src"), *target(addr), *tls.labels, *server_labels)


DIRECTION: Final = ("direction", "inbound")


def rate_limit(meta: Meta) -> Labels:
    return (("ratelimit_group", meta.group), ("ratelimit_kind", meta.kind), ("ratelimit_name", meta.name))
