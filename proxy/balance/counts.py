"""Counts: what a balancer and its queue count, as plain numbers that metrics read at a scrape (docs/linkerd/metrics.md, section 7).

Dispatching a piece of work at once adds one to `passed` and nothing else, because it has not waited. Times are the clock's,
in monotonic seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

WAIT_BOUNDS_S: Final = (0.0005, 0.005, 0.05, 0.5, 1.0, 3.0)
"""The bounds of the histogram of waits."""


class Counts:
    __slots__ = (
        "passed", "joined", "waits", "waited_s", "opened", "shut", "opened_at", "shut_at", "resets", "adds", "removes",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        """The gate begins open, which counts as opening it."""
        self.passed = 0
        """Pieces of work that got an endpoint at once."""
        self.joined = 0
        """Pieces of work that had to wait in the queue."""
        self.waits = [0] * (len(WAIT_BOUNDS_S) + 1)
        """Pieces of work that left the queue, with an endpoint or without, by how long they waited."""
        self.waited_s = 0.0
        self.opened = 1
        self.shut = 0
        self.opened_at = now
        self.shut_at = 0.0
        """When the gate was shut; 0 while it is open, as `opened_at` is 0 while it is shut."""
        self.resets = 0
        self.adds = 0
        self.removes = 0
        """The updates of the resolution that changed something, by kind."""

    def left(self, joined_at: float, now: float) -> None:
        """A wait is over."""
        waited_s = now - joined_at
        self.waits[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
        self.waited_s += waited_s

    def gate_opened(self, now: float) -> None:
        self.opened += 1
        self.opened_at = now
        self.shut_at = 0.0

    def gate_shut(self, now: float) -> None:
        self.shut += 1
        self.shut_at = now
        self.opened_at = 0.0
