"""The waiting queue and its failfast gate, served by an owner that the test controls."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.balance.queue import WaitQueue
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel

TICK_S = 0.01


class Clerk:
    def __init__(self, capacity: int = 10, failfast_s: float = 1.0) -> None:
        self.now = 0.0
        self.wheel = Wheel(TICK_S, 0.0)
        self.queue = WaitQueue(self, self.wheel, capacity, failfast_s)
        self.free = 0
        """How many endpoints are ready."""
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
        self.queue.became_ready()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wheel.advance(self.now)


@pytest.mark.acceptance("QUEUE-01")
def test_those_who_wait_are_served_in_order_once_an_endpoint_is_ready() -> None:
    clerk = Clerk()
    for waiter in "abc":
        clerk.queue.join(waiter)
    assert not clerk.served
    clerk.become_ready()
    assert clerk.served == ["a", "b", "c"] and len(clerk.queue) == 0


@pytest.mark.acceptance("QUEUE-02")
def test_a_full_queue_is_not_ready() -> None:
    clerk = Clerk(capacity=1)
    clerk.queue.join("with the clerk")
    assert clerk.queue.is_ready
    clerk.queue.join("in the queue")
    assert not clerk.queue.is_ready
    clerk.queue.leave("in the queue")
    assert clerk.queue.is_ready


@pytest.mark.acceptance("QUEUE-08")
def test_failfast_turns_everyone_away_and_shuts_until_an_endpoint_is_ready() -> None:
    clerk = Clerk(failfast_s=1.0)
    clerk.queue.join("a")
    clerk.pass_time(0.5)
    clerk.queue.join("b")
    clerk.pass_time(0.49)
    assert not clerk.turned_away
    clerk.pass_time(0.1)
    assert clerk.turned_away == ["a", "b"]
    assert clerk.queue.is_shut and not clerk.queue.is_ready
    clerk.become_ready()
    assert not clerk.queue.is_shut and clerk.queue.is_ready
    clerk.pass_time(5.0)
    assert not clerk.queue.is_shut, "time without a waiter never shuts it"


@pytest.mark.acceptance("QUEUE-09")
def test_an_endpoint_in_time_stops_the_timer() -> None:
    clerk = Clerk(failfast_s=1.0)
    clerk.queue.join("a")
    clerk.pass_time(0.5)
    clerk.become_ready()
    clerk.pass_time(2.0)
    assert clerk.served == ["a"] and not clerk.turned_away and not clerk.queue.is_shut


@pytest.mark.acceptance("QUEUE-10")
def test_the_gate_counts_its_turns() -> None:
    clerk = Clerk(failfast_s=1.0)
    counts = clerk.queue.counts
    assert (counts.opened_at, counts.shut_at) == (0.0, 0.0)
    assert (clerk.queue.counts.opened, clerk.queue.counts.shut) == (1, 0)
    clerk.queue.join("a")
    clerk.pass_time(1.1)
    assert (clerk.queue.counts.opened, clerk.queue.counts.shut) == (1, 1)
    assert counts.opened_at == 0.0 and counts.shut_at == pytest.approx(1.0, abs=3 * TICK_S), "the times swap"
    clerk.pass_time(1.0)
    clerk.become_ready()
    assert (clerk.queue.counts.opened, clerk.queue.counts.shut) == (2, 1)
    assert counts.opened_at == pytest.approx(2.1, abs=2 * TICK_S) and counts.shut_at == 0.0
    clerk.free = 0
    clerk.queue.join("b")
    clerk.pass_time(1.1)
    assert (clerk.queue.counts.opened, clerk.queue.counts.shut) == (2, 2)


def test_who_gives_up_leaves_and_the_timer_stays() -> None:
    clerk = Clerk(failfast_s=1.0)
    clerk.queue.join("a")
    clerk.queue.leave("a")
    clerk.queue.leave("a")
    clerk.pass_time(1.1)
    assert clerk.queue.is_shut and not clerk.turned_away


def test_an_endpoint_that_goes_while_it_serves_leaves_the_rest_in_the_queue_with_a_timer() -> None:
    class Once(Clerk):
        def serve(self, waiter: str) -> None:
            super().serve(waiter)
            self.free = 0

    clerk = Once(failfast_s=1.0)
    for waiter in "abc":
        clerk.queue.join(waiter)
    clerk.become_ready()
    assert clerk.served == ["a"] and len(clerk.queue) == 2
    clerk.pass_time(1.1)
    assert clerk.turned_away == ["b", "c"]


def test_closing_turns_everyone_away_for_good() -> None:
    clerk = Clerk()
    clerk.queue.join("a")
    clerk.queue.close()
    assert clerk.turned_away == ["a"] and not clerk.queue.is_ready
    clerk.pass_time(10.0)
    assert clerk.queue.counts.shut == 0


def test_who_waited_is_counted_by_how_long() -> None:
    clerk = Clerk(failfast_s=1.0)
    counts = clerk.queue.counts
    clerk.queue.join("served")
    clerk.pass_time(0.3)
    clerk.become_ready()
    clerk.free = 0
    clerk.queue.join("turned away")
    clerk.queue.join("gives up")
    clerk.queue.leave("gives up")
    clerk.pass_time(1.1)
    assert counts.joined == 3 and counts.passed == 0
    assert counts.waits == [0, 0, 0, 1, 0, 1, 0] and counts.waited_s == pytest.approx(1.3, abs=0.05)


def test_a_long_queue_is_let_go_in_turns() -> None:
    """A long queue is served, or turned away, in turns: no turn of the loop takes more than its share, and no waiter
    is forgotten or called twice.
    """

    class Loop:
        def __init__(self) -> None:
            self.asked: list[Any] = []

        def call_soon(self, callback: Any, *args: Any) -> None:
            self.asked.append((callback, args))

        def turn(self) -> None:
            callback, args = self.asked.pop(0)
            callback(*args)

    loop, clerk = Loop(), Clerk(capacity=1000, failfast_s=1.0)
    reactor = Reactor(loop, Flusher(lambda flush: flush()), clerk.wheel, lambda: clerk.now)
    queue = clerk.queue = WaitQueue(clerk, clerk.wheel, 1000, 1.0, reactor)
    names = [str(number) for number in range(500)]
    for name in names:
        queue.join(name)
    clerk.become_ready()
    assert 0 < len(clerk.served) < 100 and len(queue) == 500 - len(clerk.served)
    queue.leave("499")
    while loop.asked:
        before = len(clerk.served)
        loop.turn()
        assert len(clerk.served) - before <= 4 * 64
    assert clerk.served == names[:-1] and len(queue) == 0
    clerk.free = 0
    for name in names:
        queue.join(name)
    clerk.pass_time(1.1)
    assert queue.is_shut and 0 < len(clerk.turned_away) < 100
    queue.leave("498")
    clerk.become_ready()
    queue.join("later")
    while loop.asked:
        loop.turn()
    assert clerk.turned_away == [name for name in names if name != "498"], "failfast was told to all that waited then"
    assert clerk.served[-1] == "later" and len(queue) == 0
    assert sum(queue.counts.waits) == 499 + 499 + 1
    for name in names:
        clerk.free = 0
        queue.join(name)
    queue.part()
    assert len(clerk.turned_away) == 499 + 500, "who goes tells all of them at once"
