"""outbound_tcp_route_* and outbound_tls_route_*: connections by the route that they take (docs/linkerd/metrics.md, section 7).

They are looked up when a policy arrives; a connection adds to one number when it takes its route, and to another at its end.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.metrics.cells import Labels
from proxy.metrics.registry import Registry
from proxy.outbound import labels
from proxy.policy.client import FORBIDDEN, INVALID_BACKEND, INVALID_POLICY
from proxy.policy.meta import Meta

UNEXPECTED: Final = "unexpected"
"""A connection that failed for any reason but a policy's refusal."""
_ENDINGS: Final = ("", FORBIDDEN, INVALID_BACKEND, INVALID_POLICY, UNEXPECTED)


class StreamNumbers:
    """The numbers of one route; all five ways to end are exported from the beginning."""

    __slots__ = ("opened", "_closed")

    def __init__(self, registry: Registry, prefix: str, named: Labels) -> None:
        self.opened: Final = registry.counter(f"{prefix}_route_open_total", named)
        self._closed: Final = {
            error: registry.counter(f"{prefix}_route_close_total", (*named, ("error", error))) for error in _ENDINGS
        }

    def ended(self, error: str) -> None:
        """`error` is empty for a clean end; else UNEXPECTED, or why the route refuses."""
        self._closed[error].value += 1


class OpaqueRouteNumbers:
    """The numbers of one opaque route; `target` is where connections were going, by name or by address."""

    __slots__ = ("_numbers",)

    def __init__(self, registry: Registry, parent: Meta, route: Meta, target: tuple[str, int]) -> None:
        ip, port = target
        named = (*labels.route(parent, route), ("target_ip", ip), ("target_port", str(port)))
        self._numbers: Final = StreamNumbers(registry, "outbound_tcp", named)

    def of(self, sni: str) -> StreamNumbers:
        return self._numbers


class TlsRouteNumbers:
    """The numbers of one TLS route. `names_hosts`: the server name of each connection is a label (OUTBOUND_METRICS_HOSTNAME_LABELS)."""

    __slots__ = ("_registry", "_labels", "_names_hosts", "_by_host")

    def __init__(self, registry: Registry, parent: Meta, route: Meta, names_hosts: bool) -> None:
        self._registry: Final = registry
        self._labels: Final = labels.route(parent, route)
        self._names_hosts: Final = names_hosts
        self._by_host: Final[dict[str, StreamNumbers]] = {}
        self.of("")

    def of(self, sni: str) -> StreamNumbers:
        host = labels.hostname(sni.encode()) if self._names_hosts else ""
        found = self._by_host.get(host)
        if found is None:
            if len(self._by_host) >= limits.LABEL_NAMES:
                self._by_host.clear()
            named = (*self._labels, ("hostname", host))
            found = self._by_host[host] = StreamNumbers(self._registry, "outbound_tls", named)
        return found
