"""The deadline wheel: when deadlines fire, what cancels them, and what one bad target costs the others."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.timers import Expires, Wheel

TICK_S = 0.02


class Target:
    def __init__(self) -> None:
        self.heard = 0

    def expired(self) -> None:
        self.heard += 1


class Broken:
    def expired(self) -> None:
        raise RuntimeError("a fault of ours")


class Renewed:
    """Arms itself again from within, as an idle check does."""

    def __init__(self, wheel: Wheel) -> None:
        self.heard = 0
        self._wheel = wheel

    def expired(self) -> None:
        self.heard += 1
        self._wheel.arm(self, self._wheel.ticks(TICK_S))


@given(st.floats(0.0, 500.0), st.floats(0.0, 30.0), st.floats(0.0, 1.0))
def test_a_deadline_is_at_most_two_ticks_late_and_early_by_no_more_than_the_wheel_was_behind(
    start: float, timeout_s: float, behind_s: float
) -> None:
    wheel = Wheel(TICK_S, start)
    target = Target()
    wheel.arm(target, wheel.ticks(timeout_s))
    armed_at = start + behind_s
    wheel.advance(armed_at + timeout_s - behind_s - 1e-6)
    assert target.heard == 0
    wheel.advance(start + timeout_s + 2 * TICK_S + 1e-6)
    assert target.heard == 1
    wheel.advance(start + timeout_s + 100)
    assert target.heard == 1


def test_discarding_cancels_that_target_only() -> None:
    wheel = Wheel(TICK_S, 0.0)
    first, second = Target(), Target()
    bucket = wheel.arm(first, 5)
    assert wheel.arm(second, 5) is bucket
    bucket.discard(first)
    wheel.advance(1.0)
    assert (first.heard, second.heard) == (0, 1)


def test_a_target_may_arm_itself_again_from_within() -> None:
    wheel = Wheel(TICK_S, 0.0)
    target = Renewed(wheel)
    target.expired()
    for step in range(1, 101):
        wheel.advance(step * TICK_S * 1.001)
    assert 30 <= target.heard <= 51


def test_one_targets_fault_is_logged_and_the_others_hear_of_their_time(caplog: pytest.LogCaptureFixture) -> None:
    wheel = Wheel(TICK_S, 0.0)
    others = [Target() for _ in range(8)]
    targets: list[Expires] = [*others[:4], Broken(), *others[4:]]
    for target in targets:
        wheel.arm(target, 5)
    later = Target()
    wheel.arm(later, 7)
    with caplog.at_level(logging.ERROR):
        wheel.advance(1.0)
    assert [one.heard for one in (*others, later)] == [1] * 9
    assert "a fault of ours" in caplog.text


def test_now_is_the_time_in_whole_ticks() -> None:
    wheel = Wheel(TICK_S, 1.005)
    assert wheel.now() == pytest.approx(1.0)
    wheel.advance(2.039)
    assert wheel.now() == pytest.approx(2.02)
