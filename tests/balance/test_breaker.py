"""Breakers by themselves, at a gate that records its calls, on a wheel that the test advances."""

from __future__ import annotations

import pytest

from proxy.balance.breaker import FAILURE, RATE_LIMITED, SUCCESS, UNKNOWN, Breaker, Consecutive, Judge, Unified, Window
from proxy.balance.gate import TRIPPED, Gate
from proxy.core.backoff import Backoff
from proxy.core.loop.timers import Wheel

TICK_S = 0.01
BACKOFF = Backoff(1.0, 100.0, 0.0)


class Balancer:
    """A Readiness with one endpoint."""

    def __init__(self) -> None:
        self.is_ready = False

    def became_ready(self, endpoint: str) -> None:
        assert not self.is_ready
        self.is_ready = True

    def became_pending(self, endpoint: str) -> None:
        assert self.is_ready
        self.is_ready = False

    def has_others(self, endpoint: str) -> bool:
        return False


class Story:
    """One endpoint, which is ready itself, with its gate and its breaker."""

    def __init__(self, judge: Judge, backoff: Backoff = BACKOFF) -> None:
        self.now = 1000.0
        self.wheel = Wheel(TICK_S, self.now)
        self.balancer = Balancer()
        self.gate: Gate[str] = Gate(self.balancer)
        self.gate.became_ready("endpoint")
        self.said: list[str] = []
        self.breaker = Breaker(self.gate, judge, self.wheel, backoff, self.said.append)
        self._works = 0

    @property
    def is_open(self) -> bool:
        """Whether the endpoint may be given any amount of work."""
        return self.balancer.is_ready and not self.breaker.is_probing

    @property
    def offers_a_permit(self) -> bool:
        return self.balancer.is_ready and self.breaker.is_probing

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wheel.advance(self.now)

    def begin(self) -> int:
        """Give a piece of work to the endpoint, as its balancer would."""
        assert self.balancer.is_ready
        self._works += 1
        if self.breaker.is_probing:
            self.breaker.began(self._works)
        return self._works

    def end(self, work: int, outcome: int) -> None:
        self.breaker.ended(work, outcome, self.now)

    def do(self, *outcomes: int) -> None:
        for outcome in outcomes:
            self.end(self.begin(), outcome)


def consecutive(most: int = 2) -> Story:
    return Story(Consecutive(most))


def unified(most: int = 0, threshold: float = 0.0, least: int = 1, window_s: float = 10.0) -> Story:
    return Story(Unified(most, threshold, least, window_s))


# ---- failures in a row


@pytest.mark.acceptance("BRK-01")
def test_it_shuts_at_exactly_so_many_failures_in_a_row() -> None:
    story = consecutive()
    story.do(FAILURE)
    assert story.is_open
    story.do(SUCCESS, FAILURE)
    assert story.is_open, "a success in between begins anew"
    story.do(FAILURE)
    assert not story.balancer.is_ready and story.said == ["2 failures in a row"]


@pytest.mark.acceptance("BRK-02")
def test_one_permit_is_offered_when_the_backoff_is_over() -> None:
    story = consecutive()
    story.do(FAILURE, FAILURE)
    story.pass_time(0.5)
    assert not story.balancer.is_ready
    story.pass_time(0.5 + 2 * TICK_S)
    assert story.offers_a_permit
    story.begin()
    assert not story.balancer.is_ready, "one, and no more"


@pytest.mark.acceptance("BRK-03")
def test_a_probe_that_fails_shuts_for_longer_and_one_that_succeeds_opens() -> None:
    story = consecutive()
    late = story.begin()
    story.do(FAILURE, FAILURE)
    story.pass_time(1.1)
    story.do(FAILURE)
    story.end(late, SUCCESS)
    assert not story.balancer.is_ready, "what is heard while it is shut changes nothing"
    story.pass_time(1.9)
    assert not story.balancer.is_ready
    story.pass_time(0.2)
    assert story.offers_a_permit
    story.do(SUCCESS)
    assert story.is_open
    story.do(FAILURE)
    assert story.is_open, "the count is back at nothing"
    assert story.said == ["2 failures in a row", ""], "one word when it shut, one when it opened"


@pytest.mark.acceptance("BRK-04")
@pytest.mark.acceptance("UNI-19")
@pytest.mark.parametrize("judge", [Consecutive(1), Unified(1, 0.8, 1, 10.0)])
def test_a_closed_breaker_leaves_no_timer_and_an_open_gate(judge: Judge) -> None:
    story = Story(judge)
    story.do(FAILURE)
    story.breaker.close()
    assert not any(story.wheel._buckets.values()), "nothing wakes up for it"
    assert story.is_open
    story.end(0, FAILURE)
    story.pass_time(500.0)
    assert story.is_open and len(story.said) == 1


@pytest.mark.acceptance("BRK-05")
def test_a_probe_that_is_rate_limited_opens() -> None:
    story = consecutive(1)
    story.do(FAILURE)
    story.pass_time(1.1)
    story.do(RATE_LIMITED)
    assert story.is_open


def test_zero_failures_are_never_reached() -> None:
    story = consecutive(0)
    story.do(*[FAILURE] * 50)
    assert story.is_open


def test_a_probe_that_is_given_up_makes_way_for_another() -> None:
    story = consecutive(1)
    other = story.begin()
    story.do(FAILURE)
    story.pass_time(1.1)
    probe = story.begin()
    story.end(other, UNKNOWN)
    assert not story.balancer.is_ready, "it was not the probe"
    story.end(probe, UNKNOWN)
    assert story.offers_a_permit
    story.do(SUCCESS)
    assert story.is_open


def test_work_from_before_decides_in_probation_too() -> None:
    story = consecutive(1)
    early = story.begin()
    story.do(FAILURE)
    story.pass_time(1.1)
    probe = story.begin()
    story.end(early, SUCCESS)
    assert story.is_open
    story.end(probe, FAILURE)
    assert not story.balancer.is_ready and story.said == ["1 failures in a row", "", "1 failures in a row"]


def test_a_probe_of_an_earlier_probation_gives_no_second_permit() -> None:
    story = consecutive(1)
    late = story.begin()
    story.do(FAILURE)
    story.pass_time(1.1)
    first = story.begin()
    story.end(late, FAILURE)
    story.pass_time(2.1)
    second = story.begin()
    story.end(first, UNKNOWN)
    assert not story.balancer.is_ready
    story.end(second, SUCCESS)
    assert story.is_open


def test_an_endpoint_that_is_not_ready_itself_is_not_offered_in_probation() -> None:
    story = consecutive(1)
    story.do(FAILURE)
    story.gate.became_pending("endpoint")
    story.pass_time(1.1)
    assert not story.balancer.is_ready
    story.gate.became_ready("endpoint")
    assert story.offers_a_permit


def test_waits_grow_to_the_longest_however_often_a_probe_fails() -> None:
    story = Story(Consecutive(1), Backoff(0.1, 0.4, 0.0))
    story.do(FAILURE)
    for _ in range(1100):
        story.pass_time(0.45)
        story.do(FAILURE)
    story.pass_time(0.45)
    assert story.offers_a_permit


def test_ten_thousand_that_are_shut_have_one_timer_each() -> None:
    wheel = Wheel(TICK_S, 0.0)
    breakers = [
        Breaker(Gate(Balancer()), Consecutive(1), wheel, Backoff(1.0, 1.0, 0.0), lambda why: None)
        for _ in range(10_000)
    ]
    for _ in range(3):
        for breaker in breakers:
            breaker.ended(breaker, FAILURE, 0.0)
    assert sum(map(len, wheel._buckets.values())) == 10_000
    for breaker in breakers:
        breaker.close()
    assert not any(wheel._buckets.values())


@pytest.mark.acceptance("GATE-01")
def test_a_gate_by_what_stands_behind_it() -> None:
    """A gate that is shut or open, in front of an endpoint that is ready or not: whatever waits is woken by either
    change, and may be limited to one piece of work at a time.
    """
    story = consecutive(1)
    story.gate.shut(TRIPPED)
    assert not story.balancer.is_ready, "though the endpoint is ready"
    story.gate.open(TRIPPED)
    assert story.balancer.is_ready
    story.gate.became_pending("endpoint")
    assert not story.balancer.is_ready, "though the gate is open"
    for _ in range(3):
        story.gate.became_ready("endpoint")
        assert story.balancer.is_ready
        story.gate.became_pending("endpoint")
        assert not story.balancer.is_ready
    story.gate.became_ready("endpoint")
    story.do(FAILURE)
    story.pass_time(1.1)
    first = story.begin()
    assert not story.balancer.is_ready, "limited to one"
    story.end(first, UNKNOWN)
    second = story.begin()
    assert not story.balancer.is_ready, "one after the other"
    story.end(second, SUCCESS)
    assert story.is_open


@pytest.mark.acceptance("GATE-02")
@pytest.mark.parametrize("gate_first", [True, False])
def test_a_breaker_whose_balancer_has_gone_leaves_nothing_behind(gate_first: bool) -> None:
    """Whichever of balancer and breaker is closed first, no timer remains, and the balancer is not called."""
    story = consecutive(1)
    story.do(FAILURE)
    for close in (story.gate.close, story.breaker.close) if gate_first else (story.breaker.close, story.gate.close):
        close()
    was_ready = story.balancer.is_ready
    assert not any(story.wheel._buckets.values())
    story.pass_time(500.0)
    story.end(0, FAILURE)
    story.gate.became_pending("endpoint")
    assert story.balancer.is_ready == was_ready, "it hears of neither any more"


# ---- unified


@pytest.mark.acceptance("UNI-01")
def test_it_begins_open() -> None:
    story = unified(1, 0.8)
    assert story.is_open and story.said == []
    story.do(FAILURE)
    assert not story.balancer.is_ready


@pytest.mark.acceptance("UNI-02")
def test_a_third_failure_in_a_row() -> None:
    story = unified(3)
    story.do(FAILURE, FAILURE)
    assert story.is_open
    story.do(FAILURE)
    assert not story.balancer.is_ready


@pytest.mark.acceptance("UNI-03")
def test_a_success_begins_the_row_anew() -> None:
    story = unified(3)
    story.do(FAILURE, FAILURE, SUCCESS, FAILURE, FAILURE)
    assert story.is_open
    story.do(FAILURE)
    assert not story.balancer.is_ready


@pytest.mark.acceptance("UNI-04")
def test_rate_limits_lower_the_rate() -> None:
    story = unified(0, 0.8)
    story.do(SUCCESS)
    count = 0
    while story.balancer.is_ready and count < 10:
        count += 1
        story.pass_time(1.0)
        story.do(RATE_LIMITED)
    assert count == 1 and story.said == ["1 of 2 successful within 10s"]


@pytest.mark.acceptance("UNI-05")
def test_a_single_failure_is_a_rate_of_nothing() -> None:
    story = unified(0, 0.8)
    story.do(FAILURE)
    assert not story.balancer.is_ready


@pytest.mark.acceptance("UNI-06")
def test_too_few_requests_say_nothing() -> None:
    story = unified(0, 0.8, 5)
    story.do(*[RATE_LIMITED] * 4)
    assert story.is_open
    story.do(RATE_LIMITED)
    assert not story.balancer.is_ready


@pytest.mark.acceptance("UNI-07")
def test_at_least_no_requests_are_at_least_one() -> None:
    story = unified(0, 0.8, 0)
    story.do(FAILURE)
    assert not story.balancer.is_ready


@pytest.mark.acceptance("UNI-08")
def test_rate_limits_are_no_failures_in_a_row() -> None:
    story = unified(3, 0.1, 100)
    story.do(*[RATE_LIMITED] * 10)
    assert story.is_open
    story.do(FAILURE, FAILURE, RATE_LIMITED, FAILURE, FAILURE)
    assert story.is_open, "one begins the row anew"
    story.do(FAILURE)
    assert not story.balancer.is_ready


@pytest.mark.acceptance("UNI-10")
def test_zeros_switch_it_off() -> None:
    story = unified(0, 0.0)
    story.do(*[RATE_LIMITED, FAILURE] * 100)
    assert story.is_open
    story = unified(5, 0.0)
    story.do(*[RATE_LIMITED] * 100)
    assert story.is_open


@pytest.mark.acceptance("UNI-12")
def test_a_probe_that_is_rate_limited_shuts() -> None:
    story = unified(1)
    story.do(FAILURE)
    story.pass_time(1.1)
    story.do(RATE_LIMITED)
    assert not story.balancer.is_ready
    story.pass_time(1.1)
    assert not story.balancer.is_ready, "for two seconds now"
    story.pass_time(1.0)
    assert story.offers_a_permit


@pytest.mark.acceptance("UNI-13")
def test_a_slow_probe_is_the_only_one() -> None:
    story = unified(1)
    story.do(FAILURE)
    story.pass_time(1.1)
    probe = story.begin()
    for _ in range(50):
        story.pass_time(0.1)
        assert not story.balancer.is_ready
    story.end(probe, SUCCESS)
    assert story.is_open


@pytest.mark.acceptance("UNI-14")
@pytest.mark.acceptance("UNI-15")
def test_waits_grow_until_it_has_recovered() -> None:
    story = unified(1)
    for wait_s in (1.0, 2.0, 4.0, 8.0):
        story.do(FAILURE)
        story.pass_time(wait_s - 0.05)
        assert not story.balancer.is_ready
        story.pass_time(0.1)
        assert story.offers_a_permit
    story.do(SUCCESS)
    story.do(FAILURE)
    story.pass_time(1.1)
    assert story.offers_a_permit, "after the first wait again"


@pytest.mark.acceptance("UNI-16")
def test_long_idleness_clears_the_window() -> None:
    story = unified(0, 0.8, 3)
    story.do(FAILURE, FAILURE)
    story.pass_time(200.0)
    story.do(SUCCESS, FAILURE)
    assert story.is_open
    story.pass_time(200.0)
    story.do(FAILURE, FAILURE)
    assert story.is_open
    story.do(FAILURE)
    assert not story.balancer.is_ready


@pytest.mark.acceptance("UNI-17")
def test_recovery_clears_the_window() -> None:
    story = unified(0, 0.5, 3)
    story.do(FAILURE, FAILURE, FAILURE)
    story.pass_time(1.1)
    story.do(SUCCESS)
    story.do(FAILURE)
    assert story.is_open
    story.do(*[SUCCESS] * 20)
    assert story.is_open


@pytest.mark.acceptance("UNI-18")
def test_why_it_shuts() -> None:
    rows = (
        (Unified(2, 0.0, 1, 10.0), "2 failures in a row"),
        (Unified(0, 0.5, 2, 10.0), "0 of 2 successful within 10s"),
        (Unified(2, 0.5, 2, 10.0), "2 failures in a row"),
    )
    for judge, why in rows:
        story = Story(judge)
        story.do(FAILURE, FAILURE)
        assert story.said == [why]


# ---- the window


def rate(window: Window) -> float:
    return window.good / window.total


@pytest.mark.acceptance("UNI-21")
@pytest.mark.parametrize(("asked_s", "span_s"), [(10.0, 10.0), (5.0, 5.0), (0.01, 0.01), (0.001, 0.01), (0.0, 0.01)])
def test_what_a_window_realizes(asked_s: float, span_s: float) -> None:
    assert Window(asked_s).span_s == pytest.approx(span_s)


@pytest.mark.acceptance("UNI-22")
def test_an_empty_window_says_nothing_and_the_rate_of_arrival_does_not_matter() -> None:
    assert unified(0, 1.0, 0).is_open
    story = unified(0, 1.0, 3)
    story.do(SUCCESS, SUCCESS)
    assert story.is_open
    story.do(FAILURE)
    assert not story.balancer.is_ready
    for gap_s in (0.0, 0.001, 0.1):
        story = unified(0, 0.5, 10)
        story.do(*[SUCCESS] * 10)
        count = 0
        while story.balancer.is_ready and count < 30:
            count += 1
            story.pass_time(gap_s)
            story.do(FAILURE)
        assert count == 11, gap_s


@pytest.mark.acceptance("UNI-23")
def test_what_is_older_than_the_window_counts_no_more() -> None:
    window = Window(10.0)
    for _ in range(2):
        window.record(False, 100.0)
    for _ in range(8):
        window.record(True, 101.0)
    assert rate(window) == pytest.approx(0.8)
    for _ in range(100):
        window.record(True, 109.5)
    assert window.total == 110 and window.good == 108
    window.record(True, 110.5)
    assert window.good == window.total == 109, "the two failures were in the oldest bucket, and went alone"
    window.record(True, 111.5)
    assert window.good == window.total == 102, "then the eight of the next"
    assert rate(window) > 0.99


@pytest.mark.acceptance("UNI-24")
def test_a_window_that_is_cleared_goes_on() -> None:
    window = Window(10.0)
    for gap_s in (10.0, 11.0, 2.0**33):
        window.record(False, 100.0 + gap_s)
        assert window.total == 1 and window.good == 0
        window.record(True, 100.0 + gap_s)
        assert window.total == 2 and window.good == 1
        window.clear()
        assert window.total == 0
    story = unified(0, 0.8, 1_000_000)
    story.do(*[FAILURE] * 1000)
    assert story.is_open


def test_a_clock_that_jumps_costs_no_sample_and_no_fault() -> None:
    window = Window(10.0)
    for now in (100.0, 50.0, 0.0, 100.0):
        window.record(True, now)
    assert window.good == window.total == 4
    window.record(False, 1e12)
    assert (window.good, window.total) == (0, 1)
    window.record(True, 100.0)
    assert (window.good, window.total) == (1, 2)


def test_a_window_gives_back_every_sample() -> None:
    """Whatever the gaps between samples, the window counts exactly what its buckets hold, and no sample twice."""
    window = Window(1.0)
    now = 5.0
    for samples in range(1, 1001):
        now += (samples * 7919 % 37) / 100.0
        window.record(bool(samples % 3), now)
        assert 0 < window.total <= samples and 0 <= window.good <= window.total
        assert window.total == sum(window._totals) and window.good == sum(window._goods)
