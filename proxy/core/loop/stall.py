"""Stall: whether something that has ended on one side still moves on the other.

An end of a connection looks the same from a peer that has gone and from one that only has no more to say, so what the other side
still sends is passed on. A host that has vanished, or an app that never answers, would keep both connections for ever; so
something must move within `limits.HALF_CLOSED_S`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core import limits
from proxy.core.loop.timers import Timer, Wheel


class Stall:
    __slots__ = ("_wheel", "_moved_bytes", "_on_stalled", "_timer", "_seen_bytes")

    def __init__(self, wheel: Wheel, moved_bytes: Callable[[], int], on_stalled: Callable[[], None]) -> None:
        """Calls `on_stalled` once, when `moved_bytes()` has stayed the same for `limits.HALF_CLOSED_S`, or up to twice that
        time, because it is looked at only so often: what moves costs nothing.
        """
        self._wheel: Final = wheel
        self._moved_bytes: Final = moved_bytes
        self._on_stalled: Final = on_stalled
        self._timer: Timer | None = None
        self._seen_bytes = 0
        self._wait()

    def cancel(self) -> None:
        """`on_stalled` will not be called. What it looked at must call this when it is over."""
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()

    def _wait(self) -> None:
        self._seen_bytes = self._moved_bytes()
        self._timer = self._wheel.after(limits.HALF_CLOSED_S, self._look)

    def _look(self) -> None:
        self._timer = None
        seen_bytes = self._seen_bytes
        if self._moved_bytes() == seen_bytes:
            self._on_stalled()
        else:
            self._wait()
