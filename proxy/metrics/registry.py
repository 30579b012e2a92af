"""Registry: every number of this worker, found by name and labels, written out at a scrape.

Law: made once and passed down. Asking for a cell twice gives the same cell;
asking is for when stages are built, adding is for the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from proxy.core.faults import Faults
from proxy.core.meter import Meter
from proxy.metrics import exposition
from proxy.metrics.cells import Cell, Counter, Gauge, Histogram, Labels
from proxy.metrics.idle import Kept
from proxy.metrics.names import COUNTER, GAUGE, HISTOGRAM, LEGACY, PROM, REQUEST_PREFIXES, TELEMETRY, Family
from proxy.metrics.scope import RequestScope

_FAMILIES: Final = {family.name: family for family in (*LEGACY, *TELEMETRY, *PROM)}


class Registry:
    """`retain_idle_s`: how long label sets that nobody holds stay (METRICS_RETAIN_IDLE)."""

    __slots__ = ("clock", "retain_idle_s", "_cells", "_requests", "_meters", "_faults", "_before_scrape")

    def __init__(self, clock: Callable[[], float], retain_idle_s: float = 600.0) -> None:
        self.clock: Final = clock
        self.retain_idle_s: Final = retain_idle_s
        self._cells: Final[dict[str, dict[Labels, Cell]]] = {name: {} for name in _FAMILIES}
        self._requests: Final = {prefix: Kept(_make_scope, _requests_mark) for prefix in REQUEST_PREFIXES}
        self._meters: Final = Kept(self._make_meter, _meter_mark)
        self._faults: Final[dict[str, Faults]] = {}
        self._before_scrape: Final[list[Callable[[], None]]] = []
        for family in TELEMETRY:
            self.counter(family.name)

    def counter(self, name: str, labels: Labels = ()) -> Counter:
        """Of a family in names.py; KeyError if it has none of this name and kind."""
        cells = self._of(name, COUNTER)
        found = cells.get(labels)
        if not isinstance(found, Counter):
            found = cells[labels] = Counter()
        return found

    def gauge(self, name: str, labels: Labels = ()) -> Gauge:
        cells = self._of(name, GAUGE)
        found = cells.get(labels)
        if not isinstance(found, Gauge):
            found = cells[labels] = Gauge()
        return found

    def histogram(self, name: str, labels: Labels = ()) -> Histogram:
        cells = self._of(name, HISTOGRAM)
        found = cells.get(labels)
        if not isinstance(found, Histogram):
            found = cells[labels] = Histogram(_FAMILIES[name].bounds)
        return found

    def requests(self, prefix: str, labels: Labels) -> RequestScope:
        """`prefix`: empty for endpoints, `control_`, `route_` or `route_actual_`."""
        return self._requests[prefix].get(labels)

    def meter(self, labels: Labels) -> Meter:
        return self._meters.get(labels)

    def faults(self, direction: str) -> Faults:
        """Of `inbound` or `outbound`; a meter's connections count theirs by the meter's own direction."""
        found = self._faults.get(direction)
        if found is None:
            found = self._faults[direction] = Faults()
        return found

    def before_scrape(self, callback: Callable[[], None]) -> None:
        """Called at the beginning of each `render`: for values that are read rather than counted."""
        self._before_scrape.append(callback)

    def render(self) -> bytes:
        """The whole exposition, legacy part first, `# EOF` last; then drops what has been idle too long."""
        for callback in self._before_scrape:
            callback()
        self._show_faults()
        text = "\n".join([*self._legacy(), *self._prom(), "# EOF", ""])
        now = self.clock()
        for kept in self._requests.values():
            kept.drop_idle(now, self.retain_idle_s)
        self._meters.drop_idle(now, self.retain_idle_s)
        return text.encode()

    def _legacy(self) -> Iterable[str]:
        for family in LEGACY:
            yield from exposition.legacy_family(family, self._cells[family.name])
        for prefix, kept in self._requests.items():
            yield from exposition.request_families(prefix, kept.cells)
        yield from exposition.transport_families(self._meters.cells)
        for family in TELEMETRY:
            yield from exposition.legacy_family(family, self._cells[family.name], is_always=True)

    def _prom(self) -> Iterable[str]:
        for family in PROM:
            yield from exposition.prom_family(family, self._cells[family.name])

    def _make_meter(self, labels: Labels) -> Meter:
        return Meter(self.faults(next((value for name, value in labels if name == "direction"), "")))

    def _show_faults(self) -> None:
        for direction, faults in self._faults.items():
            for reason, count in faults.counts.items():
                labels = (("direction", direction), ("reason", reason))
                self.counter("sponson_connection_faults_total", labels).value = count

    def _of(self, name: str, kind: str) -> dict[Labels, Cell]:
        family: Family = _FAMILIES[name]
        if family.kind != kind:
            raise KeyError(f"{name} is a {family.kind}, not a {kind}")
        return self._cells[name]


def _make_scope(labels: Labels) -> RequestScope:
    return RequestScope()


def _requests_mark(scope: RequestScope) -> int:
    return scope.requests + sum(
        sum(found.latency_counts) + sum(found.ended.values()) for found in scope.by_status.values()
    )


def _meter_mark(meter: Meter) -> int:
    return meter.opened + sum(meter.closed.values()) + meter.read_bytes + meter.written_bytes
