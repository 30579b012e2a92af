"""Histogram: how often a number fell into each bucket, and the sum of all numbers, as plain integers.

Like a Meter it knows no name and no labels: metrics reads it at a scrape. An exchange counts the frames of
its bodies with one, too.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

Bounds = tuple[int, ...] | tuple[float, ...]


class Histogram:
    __slots__ = ("bounds", "counts", "total", "_first")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds: Final = bounds
        """Upper bounds, inclusive, ascending, without infinity."""
        self._first: Final[int | float] = bounds[0]
        self.counts = [0] * (len(bounds) + 1)
        self.total: int | float = 0

    def observe(self, value: float) -> None:
        # Most requests are short, and so are their frames.
        self.counts[0 if value <= self._first else bisect_left(self.bounds, value)] += 1
        self.total += value
