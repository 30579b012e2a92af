"""Counter, Gauge, Histogram: the plain numbers that the path adds to.

Found once, when a stage is built; then adding is one attribute. Nothing
here knows its name or labels: the registry does, and reads it at scrape time.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

Labels = tuple[tuple[str, str], ...]
"""Names and values in the order in which they are printed."""

Bounds = tuple[int, ...] | tuple[float, ...]


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float = 0

    def add(self, amount: int | float = 1) -> None:
        self.value += amount


class Gauge:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float = 0

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds: Final = bounds
        """Upper bounds, inclusive, ascending, without infinity."""
        self.counts = [0] * (len(bounds) + 1)
        self.total: int | float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


Cell = Counter | Gauge | Histogram
