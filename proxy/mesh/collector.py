"""Collector: makes Python's full garbage collections in quiet moments.

A full collection visits every live object. With 10,000 endpoints and 2,000 streams that takes 100 to 250 ms, in which
no client is answered, and by default it comes whenever enough objects have been made: in the middle of an edit, or
several times while proxies reconnect. The young generations are collected as usual. Only streams that have ended, and
exceptions with their tracebacks, leave cyclic garbage behind, so a full collection can wait for a quiet moment.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable
from typing import Final

NEVER: Final = 1_000_000_000

DUE: Final = 10
"""Collections of the middle generation after which a full one is made in the next quiet moment. Each stands for 7,000
objects that were made and not freed."""

OVERDUE: Final = 200
"""After this many a full collection is made at once, so that garbage never exceeds 1.4 million objects."""

QUIET_TICKS: Final = 2


class Collector:
    __slots__ = ("_activity", "_last", "_quiet")

    def __init__(self, activity: Callable[[], Hashable]) -> None:
        """`activity` must return another value after anything has been asked or changed."""
        self._activity = activity
        self._last: Hashable = None
        self._quiet = 0

    def take_over(self) -> None:
        """From now on full collections are made by `tick` alone."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, NEVER)

    def tick(self) -> bool:
        """To be called each second. Returns whether a full collection was made."""
        now = self._activity()
        self._quiet = self._quiet + 1 if now == self._last else 0
        self._last = now
        waiting = gc.get_count()[2]
        if waiting < (DUE if self._quiet >= QUIET_TICKS else OVERDUE):
            return False
        gc.collect()
        return True
