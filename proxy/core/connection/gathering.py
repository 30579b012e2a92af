"""Gathering: what both forms of Connection share: output gathers, and leaves when the flusher calls `flush`; and a deadline.

Each form has a `write` of its own, of the same text: CPython 3.11 is a third slower in a method that meets objects of two
classes, and every piece of bytes passes there.
"""

from __future__ import annotations

from proxy.core.codec import Connection
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.step_queue import Guarded, Steps
from proxy.core.loop.timers import Timer


class Gathering(Connection):
    __slots__ = ("reactor", "_output", "_is_marked", "_is_ending", "_deadline")

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self._output: list[bytes] = []
        """What was written and has not been flushed."""
        self._is_marked = False
        """Whether the flusher will call."""
        self._is_ending = False
        """Whether `end` was called: the connection is half-closed when all output has left."""
        self._deadline: Timer | None = None
        """For what the connection cannot do by itself: to be made, or to be rid of its output before it is closed."""

    def end(self) -> None:
        self._is_ending = True
        if not self._is_marked:
            self._is_marked = True
            self.reactor.flusher.mark(self)

    def schedule(self, target: Steps) -> None:
        self.reactor.steps.add(Guarded(target, self.abort))

    def _disarm(self) -> None:
        deadline = self._deadline
        if deadline is not None:
            self._deadline = None
            deadline.cancel()
