"""Turn: whether the connections that have been read in this iteration of the loop have had enough of it together.

Each connection has a share of its own (`limits.TURN_HEADS` and its neighbours), but a thousand may be ready in one
wake-up, and their shares add up. So a connection asks before it reads, unless `Flusher.reads_left` says that it need not.
If the answer is that the turn is over, it waits in `Reactor.reads` and is served at the beginning of a later turn, before
those that only then become ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from proxy.core import limits
from proxy.core.loop.effort import spent
from proxy.core.loop.flusher import Flusher

_READS: Final = 4
"""The clock is looked at before every fourth read, since most turns are short; the three between do not even ask."""
_NONE: Final = -1


class Turn:
    """A turn begins with its first read and ends when output is flushed (flusher.py), which follows whatever was ready."""

    __slots__ = ("_loop", "_flusher", "_clock", "_flush", "_began_at", "_is_over")

    def __init__(self, loop: Any, flusher: Flusher, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._flusher = flusher
        self._clock = clock
        self._flush = _NONE
        """The number of the flush that ends this turn."""
        self._began_at = 0.0
        self._is_over = False

    def is_over(self) -> bool:
        """Asked before a read; not for each, see `Flusher.reads_left`."""
        flusher = self._flusher
        if flusher.flushes != self._flush:
            self._flush = flusher.flushes
            self._is_over = False
            self._began_at = self._clock()
        elif self._is_over:
            return True
        elif self._clock() - self._began_at > limits.TURN_READS_S:
            self._is_over = True
            flusher.reads_left = 0
            self._loop.call_soon(self._end)  # there may be nothing to flush
            return True
        flusher.reads_left = _READS
        flusher.enough_s = spent.s + limits.TURN_MATCH_S
        return False

    def _end(self) -> None:
        self._flush = _NONE
