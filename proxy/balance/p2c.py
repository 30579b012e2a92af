"""Power of two choices: draw two endpoints that are ready, take the less loaded (docs/linkerd/balancing.md, section 2).

Neither a pick nor a change of readiness costs more with more endpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import random
from typing import Generic, TypeVar

from proxy.balance.picker import Loaded

E = TypeVar("E", bound=Loaded)


class P2c(Generic[E]):
    """A Picker."""

    __slots__ = ("_ready", "_places")

    def __init__(self, endpoints: Sequence[E] = ()) -> None:
        self._ready: list[E] = list(endpoints)
        self._places: dict[E, int] = {endpoint: place for place, endpoint in enumerate(self._ready)}

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, endpoint: E) -> None:
        """It may be picked from now on; adding it twice changes nothing."""
        if endpoint not in self._places:
            self._places[endpoint] = len(self._ready)
            self._ready.append(endpoint)

    def remove(self, endpoint: E) -> None:
        """It is not ready any longer, or it is gone."""
        place = self._places.pop(endpoint, -1)
        if place < 0:
            return
        last = self._ready.pop()
        if last is not endpoint:
            self._ready[place] = last
            self._places[last] = place

    def pick(self, now: float) -> E | None:
        """A ready endpoint, or None if none is ready."""
        endpoints = self._ready
        count = len(endpoints)
        if count < 2:
            return endpoints[0] if count else None
        # int(random() * n) is a tenth of the price of random.sample.
        first = int(random() * count)
        second = int(random() * (count - 1))
        if second >= first:
            second += 1
        one, other = endpoints[first], endpoints[second]
        return one if one.load.weight(now) <= other.load.weight(now) else other

    def pick_except(self, endpoint: E, now: float) -> E | None:
        """A ready endpoint that is not this one."""
        if endpoint not in self._places:
            return self.pick(now)
        self.remove(endpoint)
        other = self.pick(now)
        self.add(endpoint)
        return other
