"""Snapshot: the numbers of one registry at one moment, as plain values that another process can add to its own.

Several workers of one sidecar are one target to Prometheus: each gives a snapshot, and the worker that answers the scrape
adds them all to an empty registry and renders that. Counters, histograms and most gauges add up. Of a gauge that means the
same in each worker (a version, a limit, when something will expire), the largest value counts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.core.connection.meter import Meter
from proxy.metrics.cells import Cell, Counter, Histogram, Labels
from proxy.metrics.scope import RequestScope

Numbers = tuple[int | float, ...]
"""For a counter or a gauge its value; for a histogram its counts and their total."""
Statuses = dict[int, tuple[tuple[int, ...], int, dict[tuple[bool, str, str], int]]]
"""By status: the counts of latencies, their sum in ms, and how responses ended."""
Connections = tuple[int, int, int, int, dict[str, int]]
"""Opened, open, octets read and written, and closed ones by errno."""

_THE_SAME_IN_EACH: Final = (
    "_info", "_timestamp_seconds", "_time_seconds", "_timeout_seconds", "_stale_seconds", "_max_fds", "_limit_bytes",
)  # fmt: skip
"""The ends of the names of gauges that every worker shows with the same value."""


class Snapshot(NamedTuple):
    cells: dict[str, dict[Labels, Numbers]]
    """By family."""
    requests: dict[str, dict[Labels, tuple[int, Statuses]]]
    """By prefix."""
    connections: dict[Labels, Connections]


def of_cell(cell: Cell) -> Numbers:
    return (*cell.counts, cell.total) if isinstance(cell, Histogram) else (cell.value,)


def add_cell(name: str, cell: Cell, numbers: Numbers) -> None:
    """ValueError if the numbers come from another version, in which the histogram of this name has other buckets."""
    if isinstance(cell, Histogram):
        *counts, total = numbers
        for place, (_, count) in enumerate(zip(cell.counts, counts, strict=True)):
            cell.counts[place] += int(count)
        cell.total += total
        return
    (value,) = numbers
    if isinstance(cell, Counter) or not name.endswith(_THE_SAME_IN_EACH):
        cell.value += value
    else:
        cell.value = max(cell.value, value)


def of_scope(scope: RequestScope) -> tuple[int, Statuses]:
    statuses = {
        status: (tuple(found.latency_counts), found.latency_sum_ms, dict(found.ended))
        for status, found in scope.by_status.items()
    }
    return scope.requests, statuses


def add_scope(scope: RequestScope, numbers: tuple[int, Statuses]) -> None:
    requests, statuses = numbers
    scope.requests += requests
    for status, (counts, sum_ms, ended) in statuses.items():
        found = scope.status(status)
        for place, (_, count) in enumerate(zip(found.latency_counts, counts, strict=True)):
            found.latency_counts[place] += count
        found.latency_sum_ms += sum_ms
        for how, count in ended.items():
            found.ended[how] = found.ended.get(how, 0) + count


def of_meter(meter: Meter) -> Connections:
    return meter.opened, meter.open_count, meter.read_bytes, meter.written_bytes, dict(meter.closed)


def add_meter(meter: Meter, numbers: Connections) -> None:
    opened, open_count, read_bytes, written_bytes, closed = numbers
    meter.opened += opened
    meter.open_count += open_count
    meter.read_bytes += read_bytes
    meter.written_bytes += written_bytes
    for errno, count in closed.items():
        meter.closed[errno] = meter.closed.get(errno, 0) + count
