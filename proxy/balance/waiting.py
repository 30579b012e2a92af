"""Waiting: the one bounded line of the proxy, and the failfast gate behind it (docs/linkerd/balancing.md, section 1).

Whoever finds no endpoint ready waits here, in order, for at most the
failfast timeout. When that passes without one the gate shuts and everyone in
the line is turned away; it opens as soon as an endpoint is ready. While it is
shut nobody may join: that is what `is_ready` tells a distribution.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from proxy.core.errors import report_fault
from proxy.core.timers import Timer, Wheel


class Counter(Protocol):
    """What stands behind the counter that the line leads to."""

    def has_ready(self) -> bool:
        """An endpoint could be picked now."""

    def serve(self, waiter: Any) -> None:
        """An endpoint is ready: pick it and dispatch. The waiter has left the line."""

    def turn_away(self, waiter: Any) -> None:
        """Failfast. The waiter has left the line."""


class _Nobody:
    """The counter of a line that was parted from."""

    __slots__ = ()

    def has_ready(self) -> bool:
        return False

    def serve(self, waiter: Any) -> None: ...

    def turn_away(self, waiter: Any) -> None: ...


_NOBODY: Final = _Nobody()


class Waiting:
    __slots__ = (
        "is_shut",
        "opened",
        "shut",
        "_counter",
        "_wheel",
        "_ticks",
        "_capacity",
        "_line",
        "_timer",
        "_is_serving",
    )

    def __init__(self, counter: Counter, wheel: Wheel, capacity: int, failfast_s: float) -> None:
        self.is_shut = False
        self.opened = 1
        """How often the gate opened; being made counts as once."""
        self.shut = 0
        self._counter: Counter = counter
        self._wheel = wheel
        self._ticks = wheel.ticks(failfast_s)
        self._capacity = capacity + 1  # one is at the counter already
        self._line: dict[Any, None] = {}
        self._timer: Timer | None = None
        self._is_serving = False

    def __len__(self) -> int:
        return len(self._line)

    @property
    def is_ready(self) -> bool:
        """One more may come: the gate is open and the line is not full."""
        return not self.is_shut and len(self._line) < self._capacity

    def join(self, waiter: Any) -> None:
        """Wait; only when `is_ready`."""
        self._line[waiter] = None
        if self._timer is None:
            self._timer = self._wheel.arm(self._fail_fast, self._ticks)

    def leave(self, waiter: Any) -> None:
        """It waits no longer. The timer stays: that nobody was ready is still true."""
        self._line.pop(waiter, None)

    def became_ready(self) -> None:
        """An endpoint is ready: open the gate, serve the line while that lasts."""
        self._disarm()
        if self.is_shut:
            self.is_shut = False
            self.opened += 1
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._line and self._counter.has_ready():
                waiter = next(iter(self._line))
                del self._line[waiter]
                try:
                    self._counter.serve(waiter)
                except Exception:
                    report_fault()  # one's fault must not cost the others their turn
        finally:
            self._is_serving = False
        if self._line and self._timer is None:
            self._timer = self._wheel.arm(self._fail_fast, self._ticks)

    def _fail_fast(self) -> None:
        """The failfast timeout passed and no endpoint became ready."""
        self._timer = None
        self.is_shut = True
        self.shut += 1
        self._turn_all_away()

    def close(self) -> None:
        """Nothing is behind the counter any more."""
        self._disarm()
        self.is_shut = True
        self._turn_all_away()

    def part(self) -> None:
        """Close, and let go of the counter."""
        self.close()
        self._counter = _NOBODY

    def _turn_all_away(self) -> None:
        line = self._line
        self._line = {}
        for waiter in line:
            try:
                self._counter.turn_away(waiter)
            except Exception:
                report_fault()

    def _disarm(self) -> None:
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()
