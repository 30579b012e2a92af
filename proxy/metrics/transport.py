"""TransportMetrics: the tcp_* families (docs/linkerd/metrics.md, section 4).

A view; all state is the registry's.
"""

from __future__ import annotations

from typing import Final

from proxy.core.meter import Meter
from proxy.metrics.cells import Labels
from proxy.metrics.registry import Registry


class TransportMetrics:
    __slots__ = ("_registry",)

    def __init__(self, registry: Registry) -> None:
        self._registry: Final = registry

    def meter(self, labels: Labels) -> Meter:
        """The one Meter of these labels; `direction` and `peer` first. Cheap enough to ask per connection."""
        return self._registry.meter(labels)
