"""Registry: every number of this worker, found by name and labels, written out at a scrape.

Law: made once and passed down. Asking for a cell twice gives the same cell;
asking is for when stages are built, adding is for the path.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.meter import Meter
from proxy.metrics.cells import Counter, Gauge, Histogram, Labels
from proxy.metrics.scope import RequestScope


class Registry:
    """`retain_idle_s`: how long label sets that nobody holds stay (METRICS_RETAIN_IDLE)."""

    __slots__ = ("clock", "retain_idle_s")

    def __init__(self, clock: Callable[[], float], retain_idle_s: float = 600.0) -> None:
        self.clock = clock
        self.retain_idle_s = retain_idle_s

    def counter(self, name: str, labels: Labels = ()) -> Counter:
        """Of a family in names.py; KeyError if it has none of this name and kind."""
        raise NotImplementedError

    def gauge(self, name: str, labels: Labels = ()) -> Gauge:
        raise NotImplementedError

    def histogram(self, name: str, labels: Labels = ()) -> Histogram:
        raise NotImplementedError

    def requests(self, prefix: str, labels: Labels) -> RequestScope:
        """`prefix`: empty for endpoints, `control_`, `route_` or `route_actual_`."""
        raise NotImplementedError

    def meter(self, labels: Labels) -> Meter:
        raise NotImplementedError

    def render(self) -> bytes:
        """The whole exposition, legacy part first, `# EOF` last; then drops what has been idle too long."""
        raise NotImplementedError
