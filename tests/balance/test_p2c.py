"""Power of two choices: distinct draws, the less loaded one, a ready set that follows."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from proxy.balance import p2c
from proxy.balance.ewma import PeakEwma
from proxy.balance.p2c import P2c


class Endpoint:
    def __init__(self, rtt_s: float = 0.03) -> None:
        self.load = PeakEwma(rtt_s, 10.0, 0.0)


def test_readiness_follows_adding_and_removing() -> None:
    endpoints = [Endpoint() for _ in range(5)]
    pool: P2c[Endpoint] = P2c()
    assert pool.pick(0.0) is None and len(pool) == 0
    for endpoint in endpoints:
        pool.add(endpoint)
        pool.add(endpoint)
    assert len(pool) == 5
    pool.remove(endpoints[1])
    pool.remove(endpoints[1])
    pool.remove(endpoints[4])
    assert {id(pool.pick(0.0)) for _ in range(300)} == {id(endpoints[place]) for place in (0, 2, 3)}
    pool.remove(endpoints[0])
    pool.remove(endpoints[2])
    assert pool.pick(0.0) is endpoints[3]
    pool.remove(endpoints[3])
    assert pool.pick(0.0) is None


@pytest.mark.acceptance("P2C-01")
def test_two_drawn_endpoints_are_always_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    class Watched:
        def __init__(self, number: int) -> None:
            self.number = number

        def load(self, now: float) -> float:
            looked.append(self.number)
            return 1.0

    for count in (2, 3, 7):
        endpoints = [Endpoint() for _ in range(count)]
        for number, endpoint in enumerate(endpoints):
            endpoint.load = cast("Any", Watched(number))
        pool = P2c(endpoints)
        seen: Counter[tuple[int, ...]] = Counter()
        for first in range(count):
            for second in range(count - 1):
                dice = iter(((first + 0.5) / count, (second + 0.5) / (count - 1)))
                monkeypatch.setattr(p2c, "random", lambda dice=dice: next(dice))
                looked.clear()
                assert pool.pick(0.0) is endpoints[first], "a is taken when the loads are equal"
                assert looked[0] == first and looked[0] != looked[1]
                seen[tuple(looked)] += 1
        assert set(seen.values()) == {1} and len(seen) == count * (count - 1), "every ordered pair is as likely"


def test_the_less_loaded_of_two_is_taken() -> None:
    slow, fast = Endpoint(1.0), Endpoint(0.01)
    pool = P2c([slow, fast])
    assert all(pool.pick(0.0) is fast for _ in range(20))
    fast.load.pending = 200
    assert all(pool.pick(0.0) is slow for _ in range(20))
