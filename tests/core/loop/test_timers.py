"""The deadline wheel: when deadlines fire, what cancels them, and what one bad callback costs the others."""

from __future__ import annotations

import logging
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.loop.timers import Timer, Turning, Wheel

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
    """Arms itself again in its callback, as an idle check does."""

    def __init__(self, wheel: Wheel) -> None:
        self.heard = 0
        self._wheel = wheel

    def expired(self) -> None:
        self.heard += 1
        self._wheel.after(TICK_S, self.expired)


@given(st.floats(0.0, 500.0), st.floats(0.0, 30.0), st.floats(0.0, 1.0))
def test_a_deadline_is_at_most_two_ticks_late_and_early_by_no_more_than_the_wheel_was_behind(
    start: float, timeout_s: float, behind_s: float
) -> None:
    wheel = Wheel(TICK_S, start)
    target = Target()
    wheel.arm(target.expired, wheel.ticks(timeout_s))
    armed_at = start + behind_s
    wheel.advance(armed_at + timeout_s - behind_s - 1e-6)
    assert target.heard == 0
    wheel.advance(start + timeout_s + 2 * TICK_S + 1e-6)
    assert target.heard == 1
    wheel.advance(start + timeout_s + 100)
    assert target.heard == 1


def test_timers_that_are_cancelled_leave_nothing_behind_however_late_they_were_due() -> None:
    """Each request cancels its timeout of a day a moment later, and each timeout has a tick of its own."""
    wheel = Wheel(TICK_S, 0.0)
    kept = [Target() for _ in range(10)]
    for number, target in enumerate(kept):
        wheel.after(1.0 + number, target.expired)
    tracemalloc.start()
    for number in range(100_000):
        wheel.after(86_400.0 + number, Target().expired).cancel()
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held_bytes < 4 << 20
    wheel.advance(20.0)
    assert all(target.heard == 1 for target in kept)


def test_a_timer_that_is_cancelled_does_not_fire_and_the_others_of_its_tick_do() -> None:
    wheel = Wheel(TICK_S, 0.0)
    first, second = Target(), Target()
    timers = [wheel.arm(target.expired, 5) for target in (first, second, first)]
    timers[0].cancel()
    timers[0].cancel()
    assert [timer.is_armed for timer in timers] == [False, True, True]
    wheel.advance(1.0)
    assert (first.heard, second.heard) == (1, 1)
    assert not any(timer.is_armed for timer in timers)
    timers[1].cancel()
    wheel.advance(2.0)
    assert second.heard == 1


@pytest.mark.parametrize("ends", ["fires", "is cancelled"])
def test_a_timer_that_is_over_holds_its_callback_no_more(ends: str) -> None:
    """A timer that is over releases its callback. Otherwise an owner that keeps its timer, with one of its own methods
    as the callback, would wait for the garbage collector.
    """
    wheel = Wheel(TICK_S, 0.0)
    target = Target()
    references = sys.getrefcount(target)
    timer = wheel.after(0.1, target.expired)
    assert sys.getrefcount(target) == references + 1
    if ends == "fires":
        wheel.advance(1.0)
    else:
        timer.cancel()
    assert sys.getrefcount(target) == references


def test_a_timer_that_cancels_another_of_its_tick_keeps_it_from_firing() -> None:
    wheel = Wheel(TICK_S, 0.0)
    fired: list[int] = []
    timers: list[Timer] = []

    def fire(which: int) -> None:
        fired.append(which)
        timers[1 - which].cancel()

    timers.append(wheel.arm(lambda: fire(0), 5))
    timers.append(wheel.arm(lambda: fire(1), 5))
    wheel.advance(1.0)
    assert len(fired) == 1


def test_a_target_may_arm_itself_again_from_within() -> None:
    wheel = Wheel(TICK_S, 0.0)
    target = Renewed(wheel)
    target.expired()
    for step in range(1, 101):
        wheel.advance(step * TICK_S * 1.001)
    assert 30 <= target.heard <= 51


def test_a_fault_in_one_callback_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    wheel = Wheel(TICK_S, 0.0)
    others = [Target() for _ in range(8)]
    for callback in (*(one.expired for one in others[:4]), Broken().expired, *(one.expired for one in others[4:])):
        wheel.arm(callback, 5)
    later = Target()
    wheel.arm(later.expired, 7)
    with caplog.at_level(logging.ERROR):
        wheel.advance(1.0)
    assert [one.heard for one in (*others, later)] == [1] * 9
    assert "a fault of ours" in caplog.text


def test_now_is_the_time_in_whole_ticks() -> None:
    wheel = Wheel(TICK_S, 1.005)
    assert wheel.now() == pytest.approx(1.0)
    wheel.advance(2.039)
    assert wheel.now() == pytest.approx(2.02)


def test_after_a_stall_what_has_come_is_served_before_deadlines_fire() -> None:
    now = [0.0]
    wheel = Wheel(TICK_S, 0.0)
    turning = Turning(wheel, lambda: now[0])
    target = Target()
    wheel.after(0.1, target.expired)
    heard = []
    for moment in (0.5, 0.52):
        now[0] = moment
        turning.turn()
        heard.append(target.heard)
    assert heard == [0, 1]


def test_a_wheel_that_is_always_turned_late_turns_at_every_second_turn() -> None:
    now = [0.0]
    wheel = Wheel(TICK_S, 0.0)
    turning = Turning(wheel, lambda: now[0])
    target = Target()
    wheel.after(0.1, target.expired)
    heard = []
    for _ in range(4):
        now[0] += 0.2
        turning.turn()
        heard.append(target.heard)
    assert heard == [0, 1, 1, 1]


@pytest.mark.parametrize("is_within", [False, True], ids=["in the turn that is left out", "while it catches up"])
def test_what_is_armed_after_a_stall_has_all_of_its_time(is_within: bool) -> None:
    """A process that was stopped for 14 s, and then connects or tries something again, has the whole time for it."""
    now = [0.0]
    wheel = Wheel(TICK_S, 0.0)
    turning = Turning(wheel, lambda: now[0])
    fired: list[float] = []

    def connect() -> None:
        wheel.after(1.0, lambda: fired.append(now[0]))

    if is_within:
        wheel.after(5.0, connect)
    now[0] = 14.0
    turning.turn()
    if not is_within:
        connect()
    while not fired:
        now[0] += 0.02
        turning.turn()
        assert now[0] < 20.0
    assert 15.0 <= fired[0] < 15.1
