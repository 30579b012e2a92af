"""Authorize: may this client have this connection forwarded, or this route's request.

Decided once per connection and policy, and once per connection and
route; counted and logged where it is decided. A forwarded connection is
asked again at each update of its port's policy and ended when it is refused;
requests simply meet the policy of their moment (docs/linkerd/inbound.md, sections
5, 6 and 12).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from proxy.core.addr import Addr
from proxy.core.log import event, logger
from proxy.inbound import labels
from proxy.inbound.labels import Tls
from proxy.inbound.policies import PortPolicy
from proxy.metrics import Labels, Registry
from proxy.policy.authz import Client, find_authorization, find_tcp_authorization
from proxy.policy.defaults import AUDIT
from proxy.policy.meta import Meta, default_meta
from proxy.policy.server import Authorization, ServerPolicy, ServerRoute

_tcp_log: Final = logger("linkerd_app_inbound::policy::tcp")
_http_log: Final = logger("linkerd_app_inbound::policy::http")
_AUDIT: Final = default_meta(AUDIT)


class Arrived:
    """An accepted connection whose client is known: what authorization asks about and what its counters are labelled with."""

    __slots__ = ("peer", "target", "tls", "client", "port")

    def __init__(self, peer: Addr, target: Addr, tls: Tls, port: PortPolicy) -> None:
        self.peer: Final = peer
        self.target: Final = target
        """Where in this workload it goes: the original destination, or what a transport header says."""
        self.tls: Final = tls
        self.client: Final = Client(peer.ip, tls.is_established, tls.client_id)
        self.port: Final = port

    def server_labels(self) -> Labels:
        return labels.server(self.port.policy.meta, self.port.port)

    def event(self, route: Meta | None = None, authz: Meta | None = None) -> dict[str, Any]:
        """The fields of a log line about a decision."""
        told: dict[str, object] = _named("server", self.port.policy.meta)
        if route is not None:
            told |= _named("route", route)
        told |= {"client.tls": self.tls, "client.ip": self.peer.ip}
        if authz is not None:
            told |= _named("authz", authz)
        return event("inbound", f"server{{port={self.port.port}}}", **told)


class ConnectionGuard:
    """The authorization of one connection that is forwarded as bytes, as long as it lives."""

    __slots__ = ("_arrived", "_registry", "_on_revoked")

    def __init__(self, arrived: Arrived, registry: Registry) -> None:
        self._arrived: Final = arrived
        self._registry: Final = registry
        self._on_revoked: Callable[[], None] | None = None

    def admit(self, on_revoked: Callable[[], None]) -> bool:
        """May it be forwarded? If so, `on_revoked` is called when an update of the policy refuses it; then `end` is due."""
        arrived = self._arrived
        found = self._permit(arrived.port.policy)
        if found is None:
            self._refuse("inbound_tcp_authz_deny_total", "Connection denied")
            return False
        server = (*labels.target(arrived.target), *arrived.server_labels())
        allowed = (*server, *labels.authorization(found.meta), *arrived.tls.labels)
        self._registry.counter("inbound_tcp_authz_allow_total", allowed).add()
        self._on_revoked = on_revoked
        arrived.port.watch.subscribe(self._check_again)
        return True

    def end(self) -> None:
        """The connection is over. Idempotent."""
        if self._on_revoked is not None:
            self._on_revoked = None
            self._arrived.port.watch.unsubscribe(self._check_again)

    def _check_again(self, policy: ServerPolicy) -> None:
        on_revoked = self._on_revoked
        if on_revoked is not None and not self._permit(policy):
            self._refuse("inbound_tcp_authz_terminate_total", "Connection terminated due to policy change")
            self.end()
            on_revoked()

    def _permit(self, policy: ServerPolicy) -> Authorization | None:
        arrived = self._arrived
        found = find_tcp_authorization(policy, arrived.client)
        if found is not None and found.meta == _AUDIT:
            _tcp_log.info("Request allowed", extra=arrived.event(None, found.meta))
        return found

    def _refuse(self, counter: str, text: str) -> None:
        arrived = self._arrived
        refused = (*labels.target(arrived.target), *arrived.server_labels(), *arrived.tls.labels)
        self._registry.counter(counter, refused).add()
        _tcp_log.info(text, extra=arrived.event())


class RoutePermit:
    """What one route says to one connection's client, found once; `count` is said of each of its requests."""

    __slots__ = ("route", "authorization", "request_labels", "_arrived", "_decided", "_is_audited")

    def __init__(self, arrived: Arrived, route: ServerRoute, registry: Registry) -> None:
        self.route: Final = route
        self._arrived: Final = arrived
        self.authorization: Final[Authorization | None] = find_authorization(route.authorizations, arrived.client)
        """None: refused."""
        target = labels.target(arrived.target)
        server_and_route = (*arrived.server_labels(), *labels.route(route.meta))
        found = self.authorization
        authorized: Labels = labels.authorization(found.meta) if found is not None else ()
        name = "inbound_http_authz_allow_total" if found is not None else "inbound_http_authz_deny_total"
        self._decided: Final = registry.counter(name, (*target, *server_and_route, *authorized, *arrived.tls.labels))
        self._is_audited: Final = found is not None and found.meta == _AUDIT
        self.request_labels: Final[Labels] = (*target, *arrived.tls.labels, *server_and_route, *authorized)
        """Of request_total and its kin, after the direction."""

    def count(self) -> None:
        self._decided.add()
        if self._is_audited or self.authorization is None:
            self._tell()

    def _tell(self) -> None:
        found = self.authorization
        if found is None:
            _http_log.info("Request denied", extra=self._arrived.event(self.route.meta))
        else:
            _http_log.info("Request allowed", extra=self._arrived.event(self.route.meta, found.meta))


def _named(what: str, meta: Meta) -> dict[str, object]:
    return {f"{what}.group": meta.group, f"{what}.kind": meta.kind, f"{what}.name": meta.name}
