"""Counter, Gauge, Histogram: the plain numbers that the path adds to.

They are looked up once, when a stage is built; after that, adding touches one
attribute. A cell does not know its name or labels: the registry does, and reads
it at a scrape.
"""

from __future__ import annotations

from proxy.core.histogram import Bounds as Bounds
from proxy.core.histogram import Histogram as Histogram

Labels = tuple[tuple[str, str], ...]
"""Names and values in the order in which they are printed."""


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


Cell = Counter | Gauge | Histogram
