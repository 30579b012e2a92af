"""The moving average in which penalties are recorded, and the load that is computed from it."""

from __future__ import annotations

from math import exp, inf

import pytest

from proxy.balance.load.load import ANSWERED, BROKEN, FAILED, GIVEN_UP
from proxy.balance.load.penalty import Ewma, PenaltyEwma

DECAY_S = 10.0


def ewma(value: float | None = None, now: float = 0.0, decay_s: float = DECAY_S) -> Ewma:
    made = Ewma(decay_s, now)
    if value is not None:
        made.reset(value, now)
    return made


@pytest.mark.acceptance("EWMA-01")
def test_it_begins_at_infinity_which_any_value_replaces() -> None:
    assert ewma().at(0.0) == ewma().at(100.0) == inf
    for now in (0.0, 5.0):
        one = ewma()
        one.add_peak(3.0, now)
        assert one.at(now) == 3.0
    one = ewma()
    one.add(3.0, 5.0)
    assert one.at(5.0) == 3.0


@pytest.mark.acceptance("EWMA-02")
def test_a_value_from_before_is_ignored() -> None:
    one = ewma(2.0, 10.0)
    for now in (10.0, 9.0):
        one.add(100.0, now)
        assert one.at(10.0) == 2.0


@pytest.mark.acceptance("EWMA-03")
def test_a_peak_counts_at_once_and_less_is_blended_in() -> None:
    one = ewma(10.0)
    one.add_peak(20.0, 1.0)
    assert one.at(1.0) == 20.0
    one = ewma(10.0)
    one.add_peak(1.0, 25.0)
    assert one.at(25.0) == 1.0, "it had decayed below"
    one = ewma(10.0)
    one.add_peak(1.0, 0.1)
    assert 9.0 < one.at(0.1) < 10.0


@pytest.mark.acceptance("EWMA-04")
def test_nothing_after_one_decay() -> None:
    one = ewma(10.0)
    one.add(0.0, DECAY_S)
    assert one.at(DECAY_S) == pytest.approx(10.0 * exp(-1))


@pytest.mark.acceptance("EWMA-05")
def test_reading_changes_nothing() -> None:
    one = ewma(10.0, 100.0)
    for _ in range(2):
        assert one.at(100.0) == one.at(50.0) == 10.0
        assert one.at(110.0) == pytest.approx(10.0 * exp(-1))
        assert one.at(105.0) == pytest.approx(10.0 * exp(-0.5))
        assert one.at(1e9) == pytest.approx(0.0)
    assert ewma().at(1e9) == inf


@pytest.mark.acceptance("EWMA-06")
def test_a_reset_takes_value_and_time() -> None:
    one = ewma(10.0)
    one.reset(3.0, 50.0)
    assert one.at(50.0) == 3.0 and one.at(60.0) == pytest.approx(3.0 * exp(-1))
    one.add(7.0, 50.0)
    assert one.at(50.0) == 3.0


@pytest.mark.acceptance("EWMA-07")
@pytest.mark.parametrize("decay_s", [0.0, 0.0001, 0.001])
def test_a_decay_of_nothing_is_a_millisecond(decay_s: float) -> None:
    assert ewma(10.0, decay_s=decay_s).at(0.001) == pytest.approx(10.0 * exp(-1))


# ---- the load


def load(rtt_s: float = 0.1) -> PenaltyEwma:
    return PenaltyEwma(rtt_s, DECAY_S, 0.0)


@pytest.mark.acceptance("BIAS-01")
def test_it_grows_with_what_is_under_way() -> None:
    assert load().weight(0.0) == pytest.approx(0.1)
    one = load(0.05)
    weights = []
    for _ in range(3):
        weights.append(one.weight(0.0))
        one.pending += 1
    assert weights == pytest.approx([0.05, 0.10, 0.15])
    assert load(0.0).weight(0.0) == 0.001


@pytest.mark.acceptance("BIAS-02")
def test_a_success_records_its_time() -> None:
    one = load()
    one.pending += 1
    one.pending += 1
    assert one.weight(0.0) == pytest.approx(0.3)
    one.end(0.25, 0.25, ANSWERED)
    one.end(0.25, 0.25, ANSWERED)
    assert one.weight(0.25) == pytest.approx(0.25) and one.pending == 0


@pytest.mark.acceptance("BIAS-04")
def test_a_fast_failure_costs_more_than_a_fast_success() -> None:
    good, bad = load(), load()
    for number in range(1, 6):
        for one in (good, bad):
            one.pending += 1
        good.end(0.001, number / 100, ANSWERED)
        bad.penalize(5.0, number / 100)
        assert bad.weight(number / 100) == pytest.approx(5.0)
    assert good.weight(0.05) < 0.11
    assert bad.weight(10.05) == pytest.approx(5.0 * exp(-1)) == pytest.approx(1.84, abs=0.01)


@pytest.mark.acceptance("BIAS-06")
def test_a_penalty_below_the_estimate_does_not_pull_it_down() -> None:
    one = load()
    one.pending += 1
    one.end(20.0, 20.0, ANSWERED)
    one.pending += 1
    one.penalize(5.0, 21.0)
    assert one.weight(21.0) == pytest.approx(20.0 * exp(-0.1)), "it has only decayed"


@pytest.mark.acceptance("BIAS-07")
def test_what_was_given_up_records_its_time() -> None:
    one = load()
    one.pending += 1
    one.end(3.0, 3.0, GIVEN_UP)
    assert one.weight(3.0) == pytest.approx(3.0)
    one.pending += 1
    one.end(0.5, 13.0, GIVEN_UP)
    assert 0.5 < one.weight(13.0) < 3.0, "by what it has decayed to"


def test_no_failure_makes_it_look_better() -> None:
    """Ours: a connection that breaks off at once must not make its endpoint look fast."""
    for outcome in (BROKEN, FAILED):
        one = load()
        one.pending += 1
        one.end(0.001, 1.0, outcome)
        assert one.weight(1.0) >= 0.1 * exp(-0.1)
    one = load()
    one.pending += 1
    one.end(0.001, 1.0, BROKEN)
    assert one.weight(1.0) == 1.0
