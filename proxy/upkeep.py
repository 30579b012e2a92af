"""Upkeep: what a worker does every few seconds beside its traffic.

It drops idle series whether anyone scrapes or not, logs the counts of folded
lines and of a control plane that does not answer, and gives memory that a flood
has left free back to the system. Each is done in steps that do not hold up traffic.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Final

from proxy.app import App
from proxy.core.log import Logging
from proxy.core.loop.timers import Timer

EVERY_S: Final = 2.0
_SWEEP_EVERY: Final = 15
"""Rounds between two sweeps of the metrics."""
_FREE_BYTES: Final = 4 << 20
"""What the allocator may keep for the next burst; it is asked to give memory back when twice as much is free."""


class Upkeep:
    """A round every EVERY_S; its sweep of the metrics is a step of the step queue."""

    def __init__(self, app: App, logging: Logging, memory: Memory) -> None:
        self._app: Final = app
        self._logging: Final = logging
        self._memory: Final = memory
        self._round = 0
        self._sweep: Iterator[None] | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._app.reactor.wheel.after(EVERY_S, self._work)

    def stop(self) -> None:
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()

    def _work(self) -> None:
        self.start()
        self._round += 1
        self._logging.say_folded()
        self._app.scrapes.look_again()
        self._memory.look()
        self._app.control.look_if_stale()
        if self._sweep is None and not self._round % _SWEEP_EVERY:
            self._sweep = self._app.registry.sweep()
            self._app.reactor.steps.add(self)

    def step(self) -> None:
        sweep = self._sweep
        if sweep is None:
            return
        for _ in sweep:
            self._app.reactor.steps.add(self)
            return
        self._sweep = None


class Memory:
    """The C allocator's free memory. After a flood it is many small pieces between what lives on, which glibc never gives
    back by itself: `malloc_trim` does, by telling the kernel which whole pages are unused."""

    def __init__(self) -> None:
        self._libc: Any = None
        self._last_free = 0
        self._least_free = 1 << 62
        """The least that was free since the last trim. Memory that a trim gave back still counts as free; only memory that was
        used and freed again makes another trim worth it."""
        try:
            libc = ctypes.CDLL(None)
            libc.mallinfo2.restype = _Mallinfo2
            libc.malloc_trim.argtypes = [ctypes.c_size_t]
            self._libc = libc
        except (OSError, AttributeError):
            pass  # another libc, or an old one

    def look(self) -> None:
        """Give back what has been free for two looks; what was used between them is in use."""
        libc = self._libc
        if libc is None:
            return
        free = int(libc.mallinfo2().fordblks)
        stays_free = min(free, self._last_free)
        self._last_free = free
        self._least_free = min(self._least_free, free)
        if stays_free - self._least_free > 2 * _FREE_BYTES:
            libc.malloc_trim(_FREE_BYTES)
            self._least_free = free


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip
