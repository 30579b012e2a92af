"""HttpMetrics: request_total, response_total and response_latency_ms, and their control-plane and profile-route twins.

A view; all state is the registry's, so that two views of one registry count together.
"""

from __future__ import annotations

from typing import Final

from proxy.metrics.cells import Labels
from proxy.metrics.registry import Registry
from proxy.metrics.scope import RequestScope


class HttpMetrics:
    """`prefix`: empty for endpoints, `control_` for controllers, `route_` or `route_actual_` for ServiceProfile routes."""

    __slots__ = ("_registry", "_prefix")

    def __init__(self, registry: Registry, prefix: str = "") -> None:
        self._registry: Final = registry
        self._prefix: Final = prefix

    def scope(self, labels: Labels) -> RequestScope:
        """Hold it while the target lives: a scope that is referenced is never dropped as idle."""
        return self._registry.requests(self._prefix, labels)
