"""Whether this client may send requests to a route (docs/linkerd/inbound.md, sections 5, 6 and 12).

It is decided once per connection and route; each request meets the current policy, because an update makes new routes. It
is counted and logged per request.
"""

from __future__ import annotations

from typing import Final

from proxy.core.log import logger
from proxy.inbound import labels
from proxy.inbound.arrived import Arrived
from proxy.metrics import Labels, Registry
from proxy.policy.authz import find_authorization
from proxy.policy.defaults import AUDIT
from proxy.policy.meta import default_meta
from proxy.policy.server import Authorization, ServerRoute

_log: Final = logger("linkerd_app_inbound::policy::http")
_AUDIT: Final = default_meta(AUDIT)


class RoutePermit:
    """Whether one connection's client may use one route, decided once; `count` is called for each of its requests."""

    __slots__ = ("route", "authorization", "request_labels", "_arrived", "_decided", "_is_audited")

    def __init__(self, arrived: Arrived, route: ServerRoute, registry: Registry) -> None:
        self.route: Final = route
        self._arrived: Final = arrived
        self.authorization: Final[Authorization | None] = find_authorization(route.authorizations, arrived.client)
        """None if the client is refused."""
        target = labels.target(arrived.target)
        server_and_route = (*arrived.server_labels(), *labels.route(route.meta))
        found = self.authorization
        authorized: Labels = labels.authorization(found.meta) if found is not None else ()
        name = "inbound_http_authz_allow_total" if found is not None else "inbound_http_authz_deny_total"
        self._decided: Final = registry.counter(name, (*target, *server_and_route, *authorized, *arrived.tls.labels))
        self._is_audited: Final = found is not None and found.meta == _AUDIT
        self.request_labels: Final[Labels] = (*target, *arrived.tls.labels, *server_and_route, *authorized)
        """The labels of request_total and its siblings, after the direction."""

    def count(self) -> None:
        self._decided.value += 1
        if self._is_audited or self.authorization is None:
            self._tell()

    def _tell(self) -> None:
        found = self.authorization
        if found is None:
            _log.info("Request denied", extra=self._arrived.event(self.route.meta))
        else:
            _log.info("Request allowed", extra=self._arrived.event(self.route.meta, found.meta))
