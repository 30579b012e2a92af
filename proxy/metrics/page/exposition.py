"""How families are written: the legacy form and the OpenMetrics form (docs/linkerd/metrics.md, section 1).

Labels keep their order. prometheus_client's writers sort them and so cannot be
used here; its parser is the tests' oracle. Values are escaped in both forms, so
that a label that a peer chose cannot break the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

from proxy.core.connection.meter import Meter
from proxy.metrics.cells import Cell, Counter, Histogram, Labels
from proxy.metrics.page.names import COUNTER, TRANSPORT, Family, of_requests
from proxy.metrics.scope import LATENCY_BOUNDS_MS, RequestScope, StatusScope
from proxy.metrics.shown import status_text

WRAP: Final = (1 << 53) + 1
"""Counters run from 0 to 2**53, the last integer that a float holds, and begin again."""


def label_text(labels: Iterable[tuple[str, str]]) -> str:
    """`a="1",b="2"`"""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)


def legacy_family(
    family: Family, cells: Mapping[Labels, Cell], is_always: bool = False, shows_zeros: bool = False
) -> Iterable[str]:
    """A family in the legacy form. Without `shows_zeros`, counters at zero are left out, because Linkerd makes a
    counter when it first adds to it. `is_always`: the family is there even without a series.
    """
    is_begun = False
    for labels, cell in list(cells.items()):
        if isinstance(cell, Counter) and (cell.value or is_always or shows_zeros):
            if not is_begun:
                is_begun = True
                yield from _legacy_header(family)
            yield f"{_series(family.name, label_text(labels))} {number(cell.value)}"
    if is_always and not is_begun:
        yield from _legacy_header(family)


def prom_family(family: Family, cells: Mapping[Labels, Cell]) -> Iterable[str]:
    if not cells:
        return
    yield f"# HELP {family.header} {family.help}."
    yield f"# TYPE {family.header} {family.kind}"
    if family.unit:
        yield f"# UNIT {family.header} {family.unit}"
    for labels, cell in list(cells.items()):
        text = label_text(labels)
        if isinstance(cell, Histogram):
            yield from _histogram(family.name, text, cell)
        else:
            yield f"{_series(family.name, text)} {number(cell.value) if family.kind == COUNTER else _plain(cell.value)}"


def request_families(prefix: str, scopes: Mapping[Labels, RequestScope]) -> Iterable[str]:
    """request_total, response_latency_ms, response_total; profile attempts have no latency."""
    found = list(scopes.items())
    requests, *latency, responses = of_requests(prefix)
    is_begun = False
    for labels, scope in found:
        if scope.requests:
            if not is_begun:
                is_begun = True
                yield from _legacy_header(requests)
            yield f"{_series(requests.name, label_text(labels))} {number(scope.requests)}"
    if not any(scope.by_status for _, scope in found):
        return
    for family in (*latency, responses):
        yield from _legacy_header(family)
        for labels, scope in found:
            for status, one in list(scope.by_status.items()):
                text = _with_status(label_text(labels), status)
                yield from (
                    _responses(family.name, text, one) if family is responses else _latency(family.name, text, one)
                )


def _responses(name: str, text: str, found: StatusScope) -> Iterable[str]:
    for (is_success, grpc_status, error), count in list(found.ended.items()):
        word = "success" if is_success else "failure"
        end = label_text((("classification", word), ("grpc_status", grpc_status), ("error", error)))
        yield f"{name}{{{_joined(text, end)}}} {number(count)}"


def transport_families(meters: Mapping[Labels, Meter]) -> Iterable[str]:
    """The tcp_* families of all meters that were ever opened."""
    found = [(labels, meter) for labels, meter in meters.items() if meter.opened]
    if not found:
        return
    *open_ones, closed = TRANSPORT
    for family in open_ones:
        yield from _legacy_header(family)
        for labels, meter in found:
            yield f"{_series(family.name, label_text(labels))} {number(_of(meter, family.name))}"
    is_begun = False
    for labels, meter in found:
        for errno, count in list(meter.closed.items()):
            if not is_begun:
                is_begun = True
                yield from _legacy_header(closed)
            end = label_text((("errno", errno),))
            yield f"{closed.name}{{{_joined(label_text(labels), end)}}} {number(count)}"


def number(value: float) -> str:
    """A counter's value as it is printed: whole, and wrapped."""
    if isinstance(value, int) or value.is_integer():
        return str(int(value) % WRAP)
    return repr(value)


def _plain(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(value)


def _of(meter: Meter, name: str) -> int:
    if name == "tcp_open_total":
        return meter.opened
    if name == "tcp_open_connections":
        return meter.open_count
    return meter.read_bytes if name == "tcp_read_bytes_total" else meter.written_bytes


def _with_status(text: str, status: int) -> str:
    return _joined(text, f'status_code="{status_text(status)}"') if status else text


def _latency(name: str, text: str, found: StatusScope) -> Iterable[str]:
    counts = list(accumulate(found.latency_counts))
    for bound, count in zip((*map(str, LATENCY_BOUNDS_MS), "+Inf"), counts, strict=True):
        le = f'le="{bound}"'
        yield f"{name}_bucket{{{_joined(text, le)}}} {count}"
    yield f"{_series(name + '_count', text)} {counts[-1]}"
    yield f"{_series(name + '_sum', text)} {number(found.latency_sum_ms)}"


def _histogram(name: str, text: str, cell: Histogram) -> Iterable[str]:
    counts = list(accumulate(cell.counts))
    yield f"{_series(name + '_sum', text)} {float(cell.total)!r}"
    yield f"{_series(name + '_count', text)} {counts[-1]}"
    for bound, count in zip((*(repr(float(one)) for one in cell.bounds), "+Inf"), counts, strict=True):
        le = f'le="{bound}"'
        yield f"{name}_bucket{{{_joined(le, text)}}} {count}"


def _joined(first: str, second: str) -> str:
    return f"{first},{second}" if first and second else first or second


def _series(name: str, text: str) -> str:
    return f"{name}{{{text}}}" if text else name


def _legacy_header(family: Family) -> tuple[str, str]:
    return f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value
