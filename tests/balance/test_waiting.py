"""The line and its failfast gate, with a counter that the test opens and shuts."""

from __future__ import annotations

import pytest

from proxy.balance.waiting import Waiting
from proxy.core.timers import Wheel

TICK_S = 0.01


class Counter:
    def __init__(self, capacity: int = 10, failfast_s: float = 1.0) -> None:
        self.now = 0.0
        self.wheel = Wheel(TICK_S, 0.0)
        self.waiting = Waiting(self, self.wheel, capacity, failfast_s)
        self.free = 0
        """Endpoints that are ready."""
        self.served: list[str] = []
        self.turned_away: list[str] = []

    def has_ready(self) -> bool:
        return self.free > 0

    def serve(self, waiter: str) -> None:
        self.served.append(waiter)

    def turn_away(self, waiter: str) -> None:
        self.turned_away.append(waiter)

    def become_ready(self) -> None:
        self.free = 1
        self.waiting.became_ready()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wheel.advance(self.now)


@pytest.mark.acceptance("QUEUE-01")
def test_those_who_wait_are_served_in_order_once_an_endpoint_is_ready() -> None:
    counter = Counter()
    for waiter in "abc":
        counter.waiting.join(waiter)
    assert not counter.served
    counter.become_ready()
    assert counter.served == ["a", "b", "c"] and len(counter.waiting) == 0


@pytest.mark.acceptance("QUEUE-02")
def test_a_full_line_is_not_ready() -> None:
    counter = Counter(capacity=1)
    counter.waiting.join("at the counter")
    assert counter.waiting.is_ready
    counter.waiting.join("in line")
    assert not counter.waiting.is_ready
    counter.waiting.leave("in line")
    assert counter.waiting.is_ready


@pytest.mark.acceptance("QUEUE-08")
def test_failfast_turns_everyone_away_and_shuts_until_an_endpoint_is_ready() -> None:
    counter = Counter(failfast_s=1.0)
    counter.waiting.join("a")
    counter.pass_time(0.5)
    counter.waiting.join("b")
    counter.pass_time(0.49)
    assert not counter.turned_away
    counter.pass_time(0.1)
    assert counter.turned_away == ["a", "b"]
    assert counter.waiting.is_shut and not counter.waiting.is_ready
    counter.become_ready()
    assert not counter.waiting.is_shut and counter.waiting.is_ready
    counter.pass_time(5.0)
    assert not counter.waiting.is_shut, "time without a waiter never shuts it"


@pytest.mark.acceptance("QUEUE-09")
def test_an_endpoint_in_time_stops_the_timer() -> None:
    counter = Counter(failfast_s=1.0)
    counter.waiting.join("a")
    counter.pass_time(0.5)
    counter.become_ready()
    counter.pass_time(2.0)
    assert counter.served == ["a"] and not counter.turned_away and not counter.waiting.is_shut


@pytest.mark.acceptance("QUEUE-10")
def test_the_gate_counts_its_turns() -> None:
    counter = Counter(failfast_s=1.0)
    counts = counter.waiting.counts
    assert (counts.opened_at, counts.shut_at) == (0.0, 0.0)
    assert (counter.waiting.counts.opened, counter.waiting.counts.shut) == (1, 0)
    counter.waiting.join("a")
    counter.pass_time(1.1)
    assert (counter.waiting.counts.opened, counter.waiting.counts.shut) == (1, 1)
    assert counts.opened_at == 0.0 and counts.shut_at == pytest.approx(1.0, abs=3 * TICK_S), "the times swap"
    counter.pass_time(1.0)
    counter.become_ready()
    assert (counter.waiting.counts.opened, counter.waiting.counts.shut) == (2, 1)
    assert counts.opened_at == pytest.approx(2.1, abs=2 * TICK_S) and counts.shut_at == 0.0
    counter.free = 0
    counter.waiting.join("b")
    counter.pass_time(1.1)
    assert (counter.waiting.counts.opened, counter.waiting.counts.shut) == (2, 2)


def test_who_gives_up_leaves_and_the_timer_stays() -> None:
    counter = Counter(failfast_s=1.0)
    counter.waiting.join("a")
    counter.waiting.leave("a")
    counter.waiting.leave("a")
    counter.pass_time(1.1)
    assert counter.waiting.is_shut and not counter.turned_away


def test_an_endpoint_that_goes_while_it_serves_leaves_the_rest_in_line_with_a_timer() -> None:
    class Once(Counter):
        def serve(self, waiter: str) -> None:
            super().serve(waiter)
            self.free = 0

    counter = Once(failfast_s=1.0)
    for waiter in "abc":
        counter.waiting.join(waiter)
    counter.become_ready()
    assert counter.served == ["a"] and len(counter.waiting) == 2
    counter.pass_time(1.1)
    assert counter.turned_away == ["b", "c"]


def test_closing_turns_everyone_away_for_good() -> None:
    counter = Counter()
    counter.waiting.join("a")
    counter.waiting.close()
    assert counter.turned_away == ["a"] and not counter.waiting.is_ready
    counter.pass_time(10.0)
    assert counter.waiting.counts.shut == 0


def test_who_waited_is_counted_by_how_long() -> None:
    counter = Counter(failfast_s=1.0)
    counts = counter.waiting.counts
    counter.waiting.join("served")
    counter.pass_time(0.3)
    counter.become_ready()
    counter.free = 0
    counter.waiting.join("turned away")
    counter.waiting.join("gives up")
    counter.waiting.leave("gives up")
    counter.pass_time(1.1)
    assert counts.joined == 3 and counts.passed == 0
    assert counts.waits == [0, 0, 0, 1, 0, 1, 0] and counts.waited_s == pytest.approx(1.3, abs=0.05)
