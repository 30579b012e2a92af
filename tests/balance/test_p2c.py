"""Power of two choices: two distinct draws, of which the less loaded is picked, and a ready set that follows changes."""

from __future__ import annotations

from collections import Counter

import pytest

from proxy.balance.load.ewma import PeakEwma
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
def test_two_drawn_endpoints_are_always_distinct() -> None:
    for count in (2, 3, 7):
        endpoints = [Endpoint(0.01 * (place + 1)) for place in range(count)]
        pool = P2c(endpoints)
        picked = Counter(endpoints.index(pool.pick(0.0) or endpoints[-1]) for _ in range(4000))
        assert set(picked) == set(range(count - 1)), "the slowest would be picked only if it were drawn twice"
        # Of n (n - 1) / 2 equally likely pairs, the i-th fastest wins n - 1 - i.
        pairs = count * (count - 1) / 2
        for place, times in picked.items():
            assert times / 4000 == pytest.approx((count - 1 - place) / pairs, abs=0.05)


def test_the_less_loaded_of_two_is_taken() -> None:
    slow, fast = Endpoint(1.0), Endpoint(0.01)
    pool = P2c([slow, fast])
    assert all(pool.pick(0.0) is fast for _ in range(20))
    fast.load.pending = 200
    assert all(pool.pick(0.0) is slow for _ in range(20))
