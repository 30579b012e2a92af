"""The numbers of several workers are added up."""

from __future__ import annotations

import marshal
import pickle

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from proxy.metrics import Registry
from proxy.metrics.series.snapshot import Snapshot
from tests.kit import Clock
from tests.metrics.test_registry import full_registry


def page(*snapshots: Snapshot) -> bytes:
    """The page that the worker which answers for all of them shows."""
    registry = Registry(Clock())
    for one in snapshots:
        registry.add(one)
    return registry.render()


def test_one_worker_looks_as_it_does_itself() -> None:
    registry = full_registry()
    before = registry.render().splitlines()
    seen = page(registry.snapshot()).splitlines()
    after = set(registry.render().splitlines())
    stable = [line for line in before if line in after]
    assert len(stable) > 0.9 * len(before), "most of it does not change by being looked at"
    assert [line for line in seen if line in stable] == stable


def test_it_travels_as_plain_values() -> None:
    snapshot = full_registry().snapshot()
    assert Snapshot(*marshal.loads(marshal.dumps(tuple(snapshot)))) == snapshot
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot


def test_workers_add_up() -> None:
    registry = Registry(Clock())
    way = (("direction", "inbound"),)
    registry.requests("", way).request()
    registry.requests("", way).response_began(200, 0.004)
    registry.requests("", way).ended(200, True)
    registry.meter(way).open(1.0)
    registry.meter(way).close("ECONNRESET", 2.0)
    registry.counter("inbound_http_errors_total", way).add(3)
    registry.gauge("sponson_remembered_bytes", (("table", "x"),)).set(10.5)
    registry.gauge("sponson_remembered_limit_bytes").set(100.5)
    registry.gauge("proxy_build_info", (("version", "1"),)).set(1.5)
    one = registry.snapshot()
    registry.gauge("sponson_remembered_limit_bytes").set(90)
    text = page(one, registry.snapshot(), one).decode()
    for line in (
        'request_total{direction="inbound"} 3',
        'response_latency_ms_count{direction="inbound",status_code="200"} 3',
        'response_latency_ms_sum{direction="inbound",status_code="200"} 12',
        'tcp_open_total{direction="inbound"} 3',
        'inbound_http_errors_total{direction="inbound"} 9',
        'sponson_remembered_bytes{table="x"} 31.5',
        "sponson_remembered_limit_bytes 100.5",
        'proxy_build_info{version="1"} 1.5',
    ):
        assert line in text.splitlines(), line
    assert 'errno="ECONNRESET"' in text


def test_numbers_of_another_version_are_refused() -> None:
    snapshot = full_registry().snapshot()
    with pytest.raises(KeyError):
        page(Snapshot({"no_such_family": {(): (1,)}}, {}, {}))
    name = next(name for name, cells in snapshot.cells.items() for numbers in cells.values() if len(numbers) > 1)
    with pytest.raises(ValueError, match="zip"):
        page(Snapshot({name: {(): (1, 2)}}, {}, {}))


def test_what_is_added_up_is_a_page() -> None:
    snapshot = full_registry().snapshot()
    page_of_two = page(snapshot, snapshot).decode()
    _, _, second = page_of_two.partition("# HELP proxy_build_info")
    assert list(parse_openmetrics("# HELP proxy_build_info" + second))  # type: ignore[no-untyped-call]  # it has no types
