"""The deadline wheel: arm and cancel in O(1), one loop timer per worker.

Time is an argument. The owner of the loop calls `advance(now)` about
once a tick. A timer fires at most two ticks late, and early by no more than
the wheel was behind when it was armed. An exception in one callback never
keeps the other timers from firing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.failure.errors import report_fault


class Timer:
    """One deadline. It drops its callback when it fires or is cancelled. The callback is mostly a method of the timer's
    owner, and dropping it breaks the reference cycle, so that the owner is freed without the garbage collector."""

    __slots__ = ("_bucket", "_callback")

    def __init__(self, bucket: set[Timer], callback: Callable[[], None]) -> None:
        """Made by `Wheel.arm`; the timers of one tick share their bucket."""
        self._bucket = bucket
        self._callback: Callable[[], None] | None = callback
        bucket.add(self)

    @property
    def is_armed(self) -> bool:
        """Whether it has neither fired nor been cancelled. False already inside its own callback."""
        return self._callback is not None

    def cancel(self) -> None:
        """Its callback will not be called. Nothing happens if it has been, or if the timer was cancelled before."""
        self._callback = None
        self._bucket.discard(self)

    def fire(self) -> None:
        """Called by the wheel."""
        callback = self._callback
        if callback is not None:
            self._callback = None
            callback()


_BUCKETS: Final = 4096
"""How many buckets there may be before empty ones are looked for, which takes a fraction of a millisecond."""


class Wheel:
    """Buckets of timers by tick. Arming and cancelling do not read the clock."""

    __slots__ = ("tick_s", "now_s", "_tick", "_base", "_buckets", "_sweeps_at")

    def __init__(self, tick_s: float, now: float) -> None:
        self.tick_s = tick_s
        self._tick = int(now / tick_s)
        """The last tick whose timers have fired."""
        self.now_s = self._tick * tick_s
        """The time in whole ticks, for callers that have no clock and need none finer."""
        self._base = self._tick
        """New timers count from this tick, which is ahead of `_tick` while the wheel catches up after a stall."""
        self._buckets: dict[int, set[Timer]] = {}
        self._sweeps_at = _BUCKETS

    def ticks(self, timeout_s: float) -> int:
        """A timeout in whole ticks, rounded up, one more for the tick that has begun: asked once, when a stage is built."""
        return int(timeout_s / self.tick_s) + 2

    def now(self) -> float:
        """`now_s`, for callers that want a clock."""
        return self.now_s

    def arm(self, callback: Callable[[], None], ticks: int) -> Timer:
        """Call back once, after so many ticks, unless the timer is cancelled before."""
        due = self._base + ticks
        bucket = self._buckets.get(due)
        if bucket is None:
            if len(self._buckets) >= self._sweeps_at:
                self._sweep()
            bucket = self._buckets[due] = set()
        return Timer(bucket, callback)

    def _sweep(self) -> None:
        """Drop the buckets whose timers are all cancelled. Most timers are, and an empty bucket for a timeout of a day
        would otherwise stay for a day.
        """
        self._buckets = {due: bucket for due, bucket in self._buckets.items() if bucket}
        self._sweeps_at = max(_BUCKETS, 2 * len(self._buckets))

    def after(self, timeout_s: float, callback: Callable[[], None]) -> Timer:
        """`arm`, for a timeout that was not turned into ticks beforehand."""
        return self.arm(callback, self.ticks(timeout_s))

    def note(self, now: float) -> None:
        """Timers armed from here on count from `now`, although nothing has fired yet.

        Without this, a connect that begins after a stall, or is tried again while the wheel catches up, would have no time left.
        """
        self._base = max(self._base, int(now / self.tick_s))

    def advance(self, now: float) -> None:
        tick = int(now / self.tick_s)
        while self._tick < tick:
            self._tick += 1
            self.now_s = self._tick * self.tick_s
            if self._base < self._tick:
                self._base = self._tick
            bucket = self._buckets.pop(self._tick, None)
            while bucket:
                timer = bucket.pop()
                try:
                    timer.fire()
                except Exception:
                    report_fault()


class Turning:
    """Advances a wheel by a clock, about once a tick, and not at once after a stall.

    While the process could not run (the machine is busy, a virtual machine was paused, we have just started), it did not
    see what its peers sent: a connection may have been made, an answer may have come. So after a stall the wheel waits one
    more tick, in which what has come is served; only then do deadlines fire.
    """

    __slots__ = ("_wheel", "_clock", "_turned_at", "_was_late")

    def __init__(self, wheel: Wheel, clock: Callable[[], float]) -> None:
        self._wheel = wheel
        self._clock = clock
        self._turned_at = wheel.now_s
        self._was_late = False

    def turn(self) -> None:
        now = self._clock()
        self._was_late = not self._was_late and now - self._turned_at > 3 * self._wheel.tick_s
        self._turned_at = now
        self._wheel.note(now)
        if not self._was_late:
            self._wheel.advance(now)
