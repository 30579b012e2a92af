"""Peak-EWMA: the worked example of docs/linkerd/balancing.md, section 3.1, and that a reading counts as an
observation.
"""

from __future__ import annotations

from math import exp

import pytest

from proxy.balance.load.ewma import PeakEwma
from proxy.balance.load.load import ANSWERED, BROKEN, FAILED, GIVEN_UP


def test_worked_example() -> None:
    load = PeakEwma(0.020, 1.0, 0.0)
    assert load.weight(0.0) == pytest.approx(0.020)
    load.pending += 1
    assert load.weight(0.1) == pytest.approx(2 * 0.020 * exp(-0.1))
    assert load.weight(0.1) > 0.020
    load.pending += 1
    load.pending -= 1
    load.observe(0.200, 0.2)
    assert load.weight(0.2) == pytest.approx(0.400)
    load.pending -= 1
    load.observe(0.200, 0.3)
    assert load.weight(0.3) == pytest.approx(0.200)
    assert load.weight(1.3) < 0.100


def test_a_slow_answer_counts_at_once_and_fast_ones_slowly() -> None:
    load = PeakEwma(0.030, 10.0, 0.0)
    load.observe(1.0, 0.0)
    assert load.weight(0.0) == 1.0
    load.observe(0.0, 10.0)
    assert load.weight(10.0) == pytest.approx(exp(-1.0))
    load.observe(load.weight(10.0), 20.0)
    assert load.weight(20.0) == pytest.approx(exp(-1.0)), "an equal sample changes nothing"


def test_looking_decays_and_stores() -> None:
    looked, unlooked = PeakEwma(0.1, 1.0, 0.0), PeakEwma(0.1, 1.0, 0.0)
    for now in (0.25, 0.5, 0.75):
        looked.weight(now)
    assert looked.weight(1.0) == pytest.approx(unlooked.weight(1.0)) == pytest.approx(0.1 * exp(-1.0))
    # A clock that was read earlier than the last update neither grows nor shrinks anything.
    assert looked.weight(0.5) == pytest.approx(0.1 * exp(-1.0))


def test_the_first_estimate_is_a_millisecond_at_least() -> None:
    assert PeakEwma(0.0, 1.0, 0.0).weight(0.0) == 0.001


def test_a_decay_of_less_than_a_millisecond_is_one() -> None:
    for decay_s in (0.0, 0.0001):
        load = PeakEwma(1.0, decay_s, 0.0)
        assert load.weight(0.001) == pytest.approx(exp(-1.0))
        load.observe(0.0, 5.0)
        assert load.weight(5.0) == pytest.approx(0.0)


def test_no_failure_improves_the_estimate() -> None:
    for outcome, after in ((ANSWERED, 0.1 * exp(-1.0)), (FAILED, 0.1), (GIVEN_UP, 0.1), (BROKEN, 1.0)):
        load = PeakEwma(0.1, 10.0, 0.0)
        load.pending += 1
        load.end(0.0, 10.0, outcome)
        load._updated_at = 10.0
        assert load.pending == 0 and load.weight(10.0) == pytest.approx(after), outcome
    slow = PeakEwma(0.1, 10.0, 0.0)
    slow.pending += 1
    slow.end(3.0, 0.0, GIVEN_UP)
    assert slow.weight(0.0) == 3.0, "it would have taken at least so long"
