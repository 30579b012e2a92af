"""Power of two choices: draw two endpoints, take the less loaded.

Law: the cost of a pick does not grow with the number of endpoints.
"""

from __future__ import annotations

from random import random
from typing import Generic, Protocol, TypeVar

from proxy.balance.ewma import PeakEwma


class Loaded(Protocol):
    load: PeakEwma


E = TypeVar("E", bound=Loaded)


class P2c(Generic[E]):
    __slots__ = ("_endpoints",)

    def __init__(self, endpoints: list[E]) -> None:
        self._endpoints = endpoints

    def pick(self, now: float) -> E | None:
        endpoints = self._endpoints
        count = len(endpoints)
        if count < 2:
            return endpoints[0] if count else None
        # int(random() * n) is a tenth of the price of random.sample.
        first = int(random() * count)
        second = int(random() * (count - 1))
        if second >= first:
            second += 1
        one, other = endpoints[first], endpoints[second]
        return one if one.load.load(now) <= other.load.load(now) else other
