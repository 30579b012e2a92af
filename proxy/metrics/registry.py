"""Registry: every number of this worker, found by name and labels, written out at a scrape.

It is made once and passed down. The same name and labels always give the same
cell. Cells are looked up when stages are built; the path only adds to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from proxy.core import limits
from proxy.core.budget import LABELS, Share
from proxy.core.connection.meter import Meter
from proxy.core.failure.faults import Faults
from proxy.metrics.cells import Cell, Counter, Gauge, Histogram, Labels
from proxy.metrics.page import exposition
from proxy.metrics.page.names import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    LEGACY,
    PROM,
    REQUEST_PREFIXES,
    RETRYABLE,
    TELEMETRY,
    Family,
)
from proxy.metrics.scope import RequestScope
from proxy.metrics.scraped.transfer import TransferCost
from proxy.metrics.series.snapshot import Snapshot, add_cell, add_meter, add_scope, of_cell, of_meter, of_scope
from proxy.metrics.series.table import SeriesTable

_FAMILIES: Final = {family.name: family for family in (*LEGACY, RETRYABLE, *TELEMETRY, *PROM)}


class Registry:
    """`retain_idle_s`: how long idle label sets that are not referenced are kept (METRICS_RETAIN_IDLE)."""

    __slots__ = (
        "clock",
        "retain_idle_s",
        "_cells",
        "_requests",
        "_meters",
        "_transfer",
        "_is_sum",
        "_faults",
        "_before_scrape",
        "_labels",
        "_telemetry",
    )

    def __init__(self, clock: Callable[[], float], retain_idle_s: float = 600.0) -> None:
        self.clock: Final = clock
        self.retain_idle_s: Final = retain_idle_s
        self._labels: Final = Share(LABELS, "labels", self)
        self._cells: Final = {
            name: SeriesTable(_maker(family), _cell_mark, self._labels) for name, family in _FAMILIES.items()
        }
        self._requests: Final = {
            prefix: SeriesTable(_make_scope, _requests_mark, self._labels) for prefix in REQUEST_PREFIXES
        }
        self._transfer: Final = TransferCost()
        self._is_sum = False
        """Whether its numbers were added up from other registries, which have read their sources themselves."""
        self._meters: Final = SeriesTable(self._make_meter, _meter_mark, self._labels, self._transfer.dropped)
        self._faults: Final[dict[str, Faults]] = {}
        self._before_scrape: Final[list[Callable[[], None]]] = []
        self._telemetry: Final = [self.counter(family.name) for family in TELEMETRY]
        """Referenced here, because they are printed even if nothing was counted."""

    def counter(self, name: str, labels: Labels = ()) -> Counter:
        """The cell of a family in page/names.py; KeyError if there is no family of this name and kind."""
        found: Any = self._of(name, COUNTER).get(labels)
        counter: Counter = found
        return counter

    def gauge(self, name: str, labels: Labels = ()) -> Gauge:
        found: Any = self._of(name, GAUGE).get(labels)
        gauge: Gauge = found
        return gauge

    def histogram(self, name: str, labels: Labels = ()) -> Histogram:
        found: Any = self._of(name, HISTOGRAM).get(labels)
        histogram: Histogram = found
        return histogram

    def requests(self, prefix: str, labels: Labels) -> RequestScope:
        """The scope for requests with these labels. `prefix`: empty for endpoints, `control_` for controllers,
        `route_` or `route_actual_` for ServiceProfile routes. The user must keep the scope while its target lives,
        because a scope that is referenced is never dropped.
        """
        return self._requests[prefix].get(labels)

    def meter(self, labels: Labels) -> Meter:
        """The meter for connections with these labels, `direction` and `peer` first. Cheap enough to be called for
        each connection.
        """
        return self._meters.get(labels)

    def faults(self, direction: str) -> Faults:
        """The faults of `inbound` or `outbound`. A meter's connections count theirs under the direction of the meter."""
        found = self._faults.get(direction)
        if found is None:
            found = self._faults[direction] = Faults()
        return found

    def before_scrape(self, callback: Callable[[], None]) -> None:
        """`callback` is called at the beginning of each `render`, for values that are read rather than counted."""
        self._before_scrape.append(callback)

    def render(self) -> bytes:
        """The whole page at once, and then a sweep: for callers without a loop that it could hold up."""
        page = b"".join(self.pieces())
        for _ in self.sweep():
            pass
        return page

    def pieces(self) -> Iterator[bytes]:
        """The exposition, legacy part first, `# EOF` last, in pieces of about PIECE_BYTES, each made when it is asked for.

        What changes meanwhile is seen in the pieces that come after; no series is cut.
        """
        self._read()
        lines: list[str] = []
        size = 0
        for line in self._lines():
            lines.append(line)
            size += len(line) + 1
            if size >= limits.PIECE_BYTES:
                yield ("\n".join(lines) + "\n").encode()
                lines.clear()
                size = 0
        yield ("\n".join([*lines, "# EOF"]) + "\n").encode()

    # ---- several workers

    def snapshot(self) -> Snapshot:
        """What `pieces` would show now, for `add` of another process's registry."""
        self._read()
        return Snapshot(
            {
                name: {labels: of_cell(cell) for labels, cell in kept.cells.items()}
                for name, kept in self._cells.items()
            },
            {
                prefix: {labels: of_scope(scope) for labels, scope in kept.cells.items()}
                for prefix, kept in self._requests.items()
            },
            {labels: of_meter(meter) for labels, meter in self._meters.cells.items()},
        )

    def add(self, other: Snapshot) -> None:
        """Add what another worker has counted. KeyError if it knows families that this one does not."""
        self._is_sum = True
        for name, cells in other.cells.items():
            for labels, numbers in cells.items():
                add_cell(name, self._cells[name].get(labels), numbers)
        for prefix, scopes in other.requests.items():
            for labels, requests in scopes.items():
                add_scope(self._requests[prefix].get(labels), requests)
        for labels, connections in other.connections.items():
            add_meter(self._meters.get(labels), connections)

    def sweep(self) -> Iterator[None]:
        """Drop what has been idle for too long, in short steps. To be called now and then, whether or not anything
        scrapes.
        """
        now = self.clock()
        every: list[SeriesTable[Any]] = [*self._requests.values(), self._meters, *self._cells.values()]
        for kept in every:
            yield from kept.sweep(now, self.retain_idle_s)

    def forget(self) -> None:
        """Called by the budget, without effect: series are dropped when they are idle, and not before."""

    def _lines(self) -> Iterator[str]:
        for family in LEGACY:
            yield from exposition.legacy_family(family, self._cells[family.name].cells)
        for prefix, kept in self._requests.items():
            yield from exposition.request_families(prefix, kept.cells)
            if prefix == "route_":
                yield from exposition.legacy_family(RETRYABLE, self._cells[RETRYABLE.name].cells, shows_zeros=True)
        yield from exposition.transport_families(self._meters.cells)
        for family in TELEMETRY:
            yield from exposition.legacy_family(family, self._cells[family.name].cells, is_always=True)
        for family in PROM:
            yield from exposition.prom_family(family, self._cells[family.name].cells)

    def _make_meter(self, labels: Labels) -> Meter:
        return Meter(self.faults(next((value for name, value in labels if name == "direction"), "")))

    def _read(self) -> None:
        """Copy the numbers that are kept elsewhere."""
        for callback in self._before_scrape:
            callback()
        self._show_faults()
        if not self._is_sum:
            self._show_transfer()

    def _show_faults(self) -> None:
        for direction, faults in self._faults.items():
            for reason, count in faults.counts.items():
                labels = (("direction", direction), ("reason", reason))
                self.counter("sponson_connection_faults_total", labels).value = count

    def _show_transfer(self) -> None:
        for zone, (sent, received) in self._transfer.totals(self._meters.cells).items():
            for op, count in (("Recv", received), ("Send", sent)):
                labels = (("op", op), ("zone_locality", zone))
                self.counter("outbound_tcp_transfer_cost_bytes_total", labels).value = count

    def _of(self, name: str, kind: str) -> SeriesTable[Cell]:
        family: Family = _FAMILIES[name]
        if family.kind != kind:
            raise KeyError(f"{name} is a {family.kind}, not a {kind}")
        return self._cells[name]


def _maker(family: Family) -> Callable[[Labels], Cell]:
    if family.kind == COUNTER:
        return lambda labels: Counter()
    if family.kind == GAUGE:
        return lambda labels: Gauge()
    return lambda labels: Histogram(family.bounds)


def _cell_mark(cell: Cell) -> float:
    return sum(cell.counts) if isinstance(cell, Histogram) else cell.value


def _make_scope(labels: Labels) -> RequestScope:
    return RequestScope()


def _requests_mark(scope: RequestScope) -> int:
    return scope.requests + sum(
        sum(found.latency_counts) + sum(found.ended.values()) for found in scope.by_status.values()
    )


def _meter_mark(meter: Meter) -> int:
    return meter.opened + sum(meter.closed.values()) + meter.read_bytes + meter.written_bytes
