"""The metrics of balancers, read at a scrape: endpoints, updates, the queue and its gate (docs/linkerd/metrics.md, section 7).

A balancer keeps plain numbers and knows no registry. Balancers of the same labels, which two routers of one backend have,
add up; what one that is closed has counted stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from proxy.core.address.control_addr import ControlAddr
from proxy.metrics.cells import Labels
from proxy.metrics.registry import Registry
from proxy.metrics.scraped.balancer import BalancerNumbers


class Counts(Protocol):
    """See balance.counts.Counts."""

    passed: int
    joined: int
    waits: list[int]
    waited_s: float
    opened: int
    shut: int
    opened_at: float
    shut_at: float
    resets: int
    adds: int
    removes: int


class Counted(Protocol):
    """A balancer, or an object with the same numbers."""

    @property
    def counts(self) -> Counts: ...

    def sizes(self) -> tuple[int, int, int]:
        """How many wait in the queue, how many endpoints are ready, and how many there are."""


class Balancers:
    """The balancers of one worker. The counts' times must come from the registry's clock."""

    __slots__ = ("_registry", "_views")

    def __init__(self, registry: Registry) -> None:
        self._registry: Final = registry
        self._views: Final[dict[BalancerView, None]] = {}
        registry.before_scrape(self._copy)

    def show(self, prefix: str, labels: Labels, balancer: Counted, failfast_s: float) -> BalancerView:
        """Show a balancer's numbers until the view is closed; `prefix` is one of names.BALANCER_PREFIXES."""
        numbers = BalancerNumbers(self._registry, prefix, labels)
        numbers.gate_timeout_s.set(float(failfast_s))
        view = BalancerView(numbers, balancer, self._registry.clock, self._views)
        self._views[view] = None
        return view

    def show_client(self, client: str, target: ControlAddr, channel: Counted, failfast_s: float) -> BalancerView:
        """Show the balancer of the control plane's client of this name (`destination`, `policy`, `identity`)."""
        return self.show(f"control_{client}", (("addr", target.authority),), channel, failfast_s)

    def _copy(self) -> None:
        for view in self._views:
            view.copy()


class BalancerView:
    __slots__ = (
        "_numbers", "_balancer", "_clock", "_views", "_counters", "_gauges", "_turns",
        "_seen_counters", "_seen_gauges", "_seen_waits", "_seen_waited_s",
    )  # fmt: skip

    def __init__(
        self,
        numbers: BalancerNumbers,
        balancer: Counted,
        clock: Callable[[], float],
        views: dict[BalancerView, None],
    ) -> None:
        self._numbers: Final = numbers
        self._balancer = balancer
        self._clock = clock
        self._views = views
        self._counters: Final = (
            numbers.resets,
            numbers.adds,
            numbers.removes,
            numbers.queued,
            numbers.gate_opened,
            numbers.gate_shut,
        )
        self._gauges: Final = (
            numbers.ready_endpoints,
            numbers.pending_endpoints,
            numbers.endpoints,
            numbers.queue_length,
        )
        self._seen_counters = [0] * len(self._counters)
        self._seen_gauges = [0] * len(self._gauges)
        self._seen_waits = [0] * len(balancer.counts.waits)
        self._seen_waited_s = 0.0
        self._turns = 0
        self.copy()

    def copy(self) -> None:
        """Add what has been counted since the last time."""
        counts = self._balancer.counts
        length, ready, endpoints = self._balancer.sizes()
        counters = [
            counts.resets,
            counts.adds,
            counts.removes,
            counts.passed + counts.joined,
            counts.opened,
            counts.shut,
        ]
        gauges = [ready, endpoints - ready, endpoints, length]
        if counters == self._seen_counters and gauges == self._seen_gauges:
            return
        for counter, value, seen in zip(self._counters, counters, self._seen_counters, strict=True):
            counter.value += value - seen
        for gauge, value, seen in zip(self._gauges, gauges, self._seen_gauges, strict=True):
            gauge.value += value - seen
        self._seen_counters, self._seen_gauges = counters, gauges
        self._copy_waits(counts)
        if counts.opened + counts.shut != self._turns:
            self._turns = counts.opened + counts.shut
            ago_s = time.time() - self._clock()
            self._numbers.gate_opened_at.set(counts.opened_at + ago_s if counts.opened_at else 0.0)
            self._numbers.gate_shut_at.set(counts.shut_at + ago_s if counts.shut_at else 0.0)

    def _copy_waits(self, counts: Counts) -> None:
        """Work that got an endpoint at once has waited for no time, and counts in the first bucket."""
        waits = [counts.passed + counts.waits[0], *counts.waits[1:]]
        histogram = self._numbers.queue_latency_s
        for place, value in enumerate(waits):
            histogram.counts[place] += value - self._seen_waits[place]
        histogram.total += counts.waited_s - self._seen_waited_s
        self._seen_waits, self._seen_waited_s = waits, counts.waited_s

    def close(self) -> None:
        """The balancer is closed; the view keeps its numbers and not its endpoints."""
        self.copy()
        self._views.pop(self, None)
