"""How long the turns of a loop are, by the time that its own thread was running: a busy machine does not lengthen them."""

from __future__ import annotations

from time import thread_time
from typing import Any


class Stopwatch:
    """Between `start` and `stop`, which are called in the loop's thread. The loop spins meanwhile: each turn is looked at."""

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
