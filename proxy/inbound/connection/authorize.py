"""Whether this client may have its connection forwarded as bytes (docs/linkerd/inbound.md, sections 5 and 12).

Decided when the connection is about to be forwarded and again at each update of its port's policy, which ends a connection
that it refuses; counted and logged where it is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.log import logger
from proxy.inbound import labels
from proxy.inbound.arrived import Arrived
from proxy.metrics import Registry
from proxy.policy.authz import find_tcp_authorization
from proxy.policy.defaults import AUDIT
from proxy.policy.meta import default_meta
from proxy.policy.server import Authorization, ServerPolicy

_log: Final = logger("linkerd_app_inbound::policy::tcp")
_AUDIT: Final = default_meta(AUDIT)


class ConnectionGuard:
    """The authorization of one connection that is forwarded as bytes, as long as it lives."""

    __slots__ = ("_arrived", "_registry", "_on_revoked")

    def __init__(self, arrived: Arrived, registry: Registry) -> None:
        self._arrived: Final = arrived
        self._registry: Final = registry
        self._on_revoked: Callable[[], None] | None = None

    def admit(self, on_revoked: Callable[[], None]) -> bool:
        """Whether it may be forwarded. If so, `on_revoked` is called when an update of the policy refuses it, and `end` must
        be called when the connection is over."""
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
            _log.info("Request allowed", extra=arrived.event(None, found.meta))
        return found

    def _refuse(self, counter: str, text: str) -> None:
        arrived = self._arrived
        refused = (*labels.target(arrived.target), *arrived.server_labels(), *arrived.tls.labels)
        self._registry.counter(counter, refused).add()
        _log.info(text, extra=arrived.event())


def may_forward(arrived: Arrived) -> bool:
    """Whether `ConnectionGuard.admit` would let it in now; neither counted nor logged."""
    return find_tcp_authorization(arrived.port.policy, arrived.client) is not None
