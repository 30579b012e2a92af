"""What goes beyond Linkerd: least request, slow start, probes, and an estimate that recovers when an endpoint is fast
again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from proxy.balance.beyond.least_request import LeastRequest
from proxy.balance.beyond.recovering import RecoveringEwma
from proxy.balance.beyond.tuned import TunedP2c
from proxy.balance.load.ewma import PeakEwma
from proxy.balance.load.load import ANSWERED, BROKEN, Load


@pytest.fixture(autouse=True)
def same_dice() -> Iterator[None]:
    state = random.getstate()
    random.seed(20261201)
    yield
    random.setstate(state)


class Endpoint:
    def __init__(self, name: str, load: Load) -> None:
        self.name = name
        self.load = load


def named(count: int) -> list[Endpoint]:
    return [Endpoint(str(number), PeakEwma(0.03, 10.0, 0.0)) for number in range(count)]


def shares(picker: TunedP2c[Endpoint], now: float, picks: int = 4000) -> Counter[str]:
    found: Counter[str] = Counter()
    for _ in range(picks):
        picked = picker.pick(now)
        assert picked is not None
        found[picked.name] += 1
    return found


# ---- slow start


def test_the_share_of_one_that_has_just_come_grows() -> None:
    endpoints = named(3)
    picker: TunedP2c[Endpoint] = TunedP2c(10.0, 0.0, endpoints[:2])
    new = Endpoint("new", PeakEwma(0.001, 10.0, 0.0))
    picker.add(new)
    fair = 2 / 3
    """The share of picks, two draws among three endpoints, of one that always wins."""
    found = [shares(picker, now)["new"] / 4000 for now in (100.0, 102.5, 105.0, 107.5, 110.0, 200.0)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(fair * 0.1, abs=0.03) and found[2] == pytest.approx(fair * 0.5, abs=0.05)
    assert found[-1] == pytest.approx(fair, abs=0.05)
    assert not picker._since, "nothing is remembered of one that has started"


def test_those_that_all_begin_are_shared_as_usual() -> None:
    endpoints = named(4)
    picker: TunedP2c[Endpoint] = TunedP2c(10.0, 0.0)
    for endpoint in endpoints:
        picker.add(endpoint)
    endpoints[0].load.pending += 1
    assert shares(picker, 100.0)["0"] < 300, "by load, as ever"


def test_one_that_goes_while_it_starts_begins_anew_when_it_comes_back() -> None:
    endpoints = named(2)
    picker: TunedP2c[Endpoint] = TunedP2c(10.0, 0.0, endpoints)
    new = Endpoint("new", PeakEwma(0.001, 10.0, 0.0))
    picker.add(new)
    shares(picker, 100.0)
    picker.remove(new)
    assert not picker._since
    picker.add(new)
    picker.add(new)
    assert shares(picker, 109.0)["new"] / 4000 < 0.2 and len(picker) == 3


def test_one_that_is_passed_over_once_goes_on_as_it_was() -> None:
    endpoints = named(2)
    picker: TunedP2c[Endpoint] = TunedP2c(10.0, 0.0, endpoints)
    new = Endpoint("new", PeakEwma(0.001, 10.0, 0.0))
    picker.add(new)
    shares(picker, 100.0)
    assert picker.pick_except(new, 105.0) in endpoints and picker._since == {new: 100.0} and len(picker) == 3
    assert picker.pick_except(endpoints[0], 105.0) is not endpoints[0] and picker._since == {new: 100.0}
    picker.remove(new)
    assert picker.pick_except(new, 105.0) in endpoints and len(picker) == 2


# ---- probes


def test_a_slow_one_without_work_gets_its_probes_and_one_that_hangs_no_second() -> None:
    endpoints = named(2)
    slow = endpoints[0]
    slow.load.pending += 1
    slow.load.end(60.0, 100.0, ANSWERED)
    without: TunedP2c[Endpoint] = TunedP2c(0.0, 0.0, endpoints)
    assert shares(without, 100.0)["0"] == 0
    picker: TunedP2c[Endpoint] = TunedP2c(0.0, 0.05, endpoints)
    assert shares(picker, 100.0)["0"] / 4000 == pytest.approx(0.025, abs=0.01)
    slow.load.pending += 1
    assert shares(picker, 100.0)["0"] == 0, "it has a probe that it has not answered"


def test_an_estimate_believes_some_fast_answers_in_a_row() -> None:
    load = RecoveringEwma(0.03, 10.0, 0.0)
    usual = PeakEwma(0.03, 10.0, 0.0)
    for one in (load, usual):
        one.observe(20.0, 100.0)
        for number in range(3):
            one.observe(0.005 + number / 1000, 101.0)
    assert load.weight(101.0) == pytest.approx(0.007), "the slowest of them"
    assert usual.weight(101.0) > 10.0
    load.observe(20.0, 102.0)
    for _ in range(10):
        load.observe(0.005, 102.0)
        load.observe(0.005, 102.0)
        assert load.weight(102.0) > 10.0, "two in a row are not enough"
        load.observe(15.0, 102.0)


def test_an_estimate_without_fast_answers_is_the_usual_one() -> None:
    load = RecoveringEwma(0.03, 10.0, 0.0)
    usual = PeakEwma(0.03, 10.0, 0.0)
    for rtt_s, now in ((20.0, 100.0), (15.0, 110.0), (12.0, 115.0), (16.0, 116.0)):
        load.observe(rtt_s, now)
        usual.observe(rtt_s, now)
        assert load.weight(now) == usual.weight(now) > 10.0


# ---- least request


def test_least_request_looks_at_nothing_but_work() -> None:
    load = LeastRequest()
    load.pending += 1
    load.pending += 1
    assert load.weight(0.0) == 2.0
    load.end(60.0, 1.0, ANSWERED)
    assert load.weight(1.0) == 1.0 and load.pending == 1


def test_one_that_breaks_off_is_not_the_least_busy() -> None:
    good, bad = LeastRequest(), LeastRequest()
    for _ in range(100):
        good.pending += 1
    bad.pending += 1
    bad.end(0.001, 10.0, BROKEN)
    assert bad.weight(10.5) > good.weight(10.5) and bad.weight(11.1) < good.weight(11.1)
