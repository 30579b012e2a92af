"""Effort: what one request may cost in all tables together, by the steps that are counted and by the clock."""

from __future__ import annotations

import pytest

from proxy.core import limits
from proxy.core.loop.effort import Effort, TooCostlyError, spent

LOOK = limits.MATCH_LOOK_STEPS


class Cpu:
    """The thread's CPU time, which the test moves."""

    def __init__(self) -> None:
        self.now_s = 5.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now_s


def test_few_steps_never_look_at_the_clock() -> None:
    cpu = Cpu()
    effort = Effort(cpu)
    for _ in range(100):
        effort.spend(LOOK // 100, "a")
    effort.rest()
    assert cpu.looks == 0


def test_many_steps_look_at_the_clock_now_and_then_and_end_when_they_have_taken_long() -> None:
    cpu = Cpu()
    effort = Effort(cpu)
    for _ in range(1000):
        effort.spend(LOOK // 10, "a")
    assert 80 < cpu.looks < 100
    cpu.now_s += limits.MATCH_S * 1.01
    with pytest.raises(TooCostlyError, match=r"/b\.\* came when others had taken 10 ms"):
        for _ in range(11):
            effort.spend(LOOK // 10, "/b.*")


def test_what_could_take_long_by_itself_is_not_begun() -> None:
    effort = Effort(Cpu())
    effort.spend(limits.MATCH_STEPS, "a")
    with pytest.raises(TooCostlyError, match=r"/c\.\* could take too long"):
        effort.spend(limits.MATCH_STEPS + 1, "/c.*")


def test_time_between_searches_is_not_counted_and_that_of_all_searches_is() -> None:
    cpu = Cpu()
    effort = Effort(cpu)
    before_s = spent.s
    for _ in range(3):
        effort.spend(2 * LOOK, "a")
        cpu.now_s += limits.MATCH_S * 0.35
        effort.rest()
        cpu.now_s += 60.0
    assert spent.s - before_s == pytest.approx(limits.MATCH_S * 1.05)
    with pytest.raises(TooCostlyError):
        effort.spend(2 * LOOK, "a")
