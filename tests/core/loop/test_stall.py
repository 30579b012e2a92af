"""What has ended on one side is kept as long as the other side still moves."""

from __future__ import annotations

from proxy.core import limits
from proxy.core.loop.stall import Stall
from proxy.core.loop.timers import Wheel

TICK_S = 1.0


class Moving:
    def __init__(self) -> None:
        self.wheel = Wheel(TICK_S, 0.0)
        self.now = 0.0
        self.bytes = 7
        self.stalls = 0
        self.stall = Stall(self.wheel, lambda: self.bytes, self._on_stalled)

    def _on_stalled(self) -> None:
        self.stalls += 1

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wheel.advance(self.now)


def test_what_does_not_move_has_stalled_once() -> None:
    it = Moving()
    it.pass_time(limits.HALF_CLOSED_S - 1)
    assert it.stalls == 0
    for _ in range(3):
        it.pass_time(limits.HALF_CLOSED_S)
    assert it.stalls == 1


def test_each_byte_gives_it_the_whole_time_again() -> None:
    it = Moving()
    for _ in range(5):
        it.bytes += 1
        it.pass_time(limits.HALF_CLOSED_S + 3 * TICK_S)
    assert it.stalls == 0
    it.pass_time(limits.HALF_CLOSED_S + 3 * TICK_S)
    assert it.stalls == 1


def test_one_that_is_cancelled_says_nothing() -> None:
    it = Moving()
    it.stall.cancel()
    it.stall.cancel()
    it.pass_time(3 * limits.HALF_CLOSED_S)
    assert it.stalls == 0
