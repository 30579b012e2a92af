"""Balancers on the metrics page: their counts in Linkerd's families, and several balancers of one name added up."""

from __future__ import annotations

import re

import pytest

from proxy.balance.counts import WAIT_BOUNDS_S, Counts
from proxy.metrics.page.names import PROM
from proxy.metrics.registry import Registry
from proxy.metrics.scraped.balancers import Balancers

LABELS = (("parent_name", "web"), ("backend_name", "web"))


class Source:
    """Something with the interface of a balancer."""

    def __init__(self, now: float) -> None:
        self.counts = Counts(now)
        self.now = (0, 0, 0)

    def sizes(self) -> tuple[int, int, int]:
        return self.now


class Page:
    def __init__(self) -> None:
        self.now = 50.0
        self.registry = Registry(lambda: self.now)
        self.balancers = Balancers(self.registry)

    def source(self) -> Source:
        return Source(self.now)

    def value(self, name: str, first: str = "") -> float:
        """The value of the one series of this name; `outbound_http_balancer_` is left out."""
        text = re.escape(f"outbound_http_balancer_{name}{{{first}")
        found = re.findall(rf"^{text}.*}} (\S+)$", self.registry.render().decode(), re.MULTILINE)
        assert len(found) == 1, (name, found)
        return float(found[0])


def test_bounds_are_the_catalogues() -> None:
    (family,) = [one for one in PROM if one.name == "outbound_http_balancer_queue_latency_seconds"]
    assert family.bounds == WAIT_BOUNDS_S


def test_every_family_is_there_from_the_beginning_in_its_order() -> None:
    page = Page()
    page.balancers.show("outbound_http", LABELS, page.source(), 3.0)
    text = page.registry.render().decode()
    headers = re.findall(r"^# TYPE outbound_http_balancer_(\S+) ", text, re.MULTILINE)
    assert headers == [
        "endpoints", "p2c_endpoints", "p2c_updates", "queue_length", "queue_requests", "queue_latency_seconds",
        "queue_gate_open", "queue_gate_shut", "queue_gate_open_time_seconds", "queue_gate_shut_time_seconds",
        "queue_gate_timeout_seconds",
    ]  # fmt: skip
    for op in ("Reset", "Add", "Remove"):
        assert page.value("p2c_updates_total", f'op="{op}",parent_name="web",') == 0
    assert page.value("queue_gate_open_total") == 1 and page.value("queue_gate_timeout_seconds") == 3.0


def test_numbers_are_read_at_a_scrape() -> None:
    page = Page()
    source = page.source()
    page.balancers.show("outbound_http", LABELS, source, 3.0)
    source.now = (4, 2, 5)
    counts = source.counts
    counts.passed, counts.joined, counts.adds = 7, 3, 2
    counts.left(10.0, 10.3)
    assert page.value("endpoints", 'endpoint_state="ready"') == 2
    assert page.value("endpoints", 'endpoint_state="pending"') == 3
    assert page.value("p2c_endpoints") == 5 and page.value("queue_length") == 4
    assert page.value("p2c_updates_total", 'op="Add"') == 2
    assert page.value("queue_requests_total") == 10
    assert page.value("queue_latency_seconds_count") == 8
    assert page.value("queue_latency_seconds_bucket", 'le="0.0005"') == 7
    assert page.value("queue_latency_seconds_bucket", 'le="0.5"') == 8
    assert page.value("queue_latency_seconds_sum") == pytest.approx(0.3)
    source.now = (0, 0, 1)
    assert page.value("endpoints", 'endpoint_state="ready"') == 0 and page.value("queue_length") == 0


def test_times_of_the_gate_are_the_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page()
    source = page.source()
    monkeypatch.setattr("time.time", lambda: 1_796_000_000.0 + page.now)
    page.balancers.show("outbound_http", LABELS, source, 3.0)
    assert page.value("queue_gate_open_time_seconds") == 1_796_000_050.0
    page.now = 60.0
    source.counts.gate_shut(58.0)
    assert page.value("queue_gate_open_time_seconds") == 0.0
    assert page.value("queue_gate_shut_time_seconds") == 1_796_000_058.0
    page.now = 90.0
    assert page.value("queue_gate_shut_time_seconds") == 1_796_000_058.0, "it stays what it was"


@pytest.mark.acceptance("P2C-03")
def test_balancers_of_one_name_add_up_and_one_that_is_closed_leaves_its_counts_alone() -> None:
    page = Page()
    one, other = page.source(), page.source()
    first = page.balancers.show("outbound_http", LABELS, one, 3.0)
    page.balancers.show("outbound_http", LABELS, other, 3.0)
    one.now, other.now = (1, 2, 3), (0, 1, 1)
    one.counts.passed, other.counts.passed = 5, 6
    assert page.value("p2c_endpoints") == 4 and page.value("queue_requests_total") == 11
    one.counts.passed = 8
    one.now = (0, 0, 0)
    first.close()
    one.counts.passed = 100
    assert page.value("p2c_endpoints") == 1 and page.value("queue_requests_total") == 14
    assert page.value("endpoints", 'endpoint_state="ready"') == 1
