"""How long the turns of a loop take, by the CPU time of its own thread: a busy machine does not lengthen them."""

from __future__ import annotations

from time import thread_time
from typing import Any


class Stopwatch:
    """Measures between `start` and `stop`, which are called in the loop's thread. Meanwhile the loop spins, so that
    each turn is seen.
    """

    def __init__(self, loop: Any) -> None:
        self.longest_ms = 0.0
        self._loop = loop
        self._is_running = False
        self._last = 0.0

    def start(self) -> None:
        self._is_running = True
        self._last = thread_time()
        self._loop.call_soon(self._look)

    def stop(self) -> None:
        self._is_running = False

    def _look(self) -> None:
        now = thread_time()
        self.longest_ms = max(self.longest_ms, 1e3 * (now - self._last))
        self._last = now
        if self._is_running:
            self._loop.call_soon(self._look)
