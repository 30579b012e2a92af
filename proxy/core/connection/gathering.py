"""Gathering: what both forms of Connection share of writing. Output gathers, and leaves when the flusher calls `flush`."""

from __future__ import annotations

from proxy.core.codec import Connection
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.step_queue import Guarded, Steps


class Gathering(Connection):
    __slots__ = ("reactor", "_output", "_is_marked", "_is_ending")

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self._output: list[bytes] = []
        """What was written and has not been flushed."""
        self._is_marked = False
        """Whether the flusher will call."""
        self._is_ending = False
        """Whether `end` was called: the connection is half-closed when all output has left."""

    def write(self, data: bytes) -> None:
        self._output.append(data)
        if not self._is_marked:
            self._is_marked = True
            marked = self.reactor.flusher.marked
            if marked:
                marked.append(self)
            else:
                self.reactor.flusher.mark(self)  # the first of a turn

    def end(self) -> None:
        self._is_ending = True
        if not self._is_marked:
            self._is_marked = True
            self.reactor.flusher.mark(self)

    def schedule(self, target: Steps) -> None:
        self.reactor.steps.add(Guarded(target, self.abort))
