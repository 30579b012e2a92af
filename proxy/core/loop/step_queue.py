"""StepQueue: a fair queue for work that would hold the loop too long if it were done at once.

A turn is one iteration of the event loop. Work that is more than one turn
allows does its share, queues itself for another step, and lets everything else
go first. At most limits.TURN_STEPS steps are taken in one turn, and none is begun
once they have taken limits.TURN_STEPS_S together (a queue may have other bounds), so that the queue delays other work by a
bounded time however long it is. Each step must be short by itself:
docs/design.md, "What bounds one turn", says how.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from proxy.core import limits
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason


class Steps(Protocol):
    def step(self) -> None:
        """Do one share of the work; ask again if any is left."""


class Guarded:
    """A codec's step: an exception in it ends the codec's own connection, as one in any other of its callbacks does."""

    __slots__ = ("_target", "_abort")

    def __init__(self, target: Steps, abort: Callable[[Reason], None]) -> None:
        self._target = target
        self._abort = abort

    def step(self) -> None:
        try:
            self._target.step()
        except Exception:
            report_fault()
            self._abort(Reason.INTERNAL)


class StepQueue:
    """Uses nothing of `loop` but `call_soon`, and only while the queue is not empty."""

    __slots__ = ("_loop", "_clock", "_queue", "_most", "_turn_s")

    def __init__(
        self, loop: Any, clock: Callable[[], float], most: int = limits.TURN_STEPS, turn_s: float = limits.TURN_STEPS_S
    ) -> None:
        """`most` steps are taken in one turn, and none is begun after `turn_s`."""
        self._loop = loop
        self._clock = clock
        self._queue: deque[Steps] = deque()
        self._most = most
        self._turn_s = turn_s

    def add(self, target: Steps) -> None:
        """Call `target.step` soon, once for each time that it was added; never within this call."""
        if not self._queue:
            self._loop.call_soon(self._turn)
        self._queue.append(target)

    def _turn(self) -> None:
        queue = self._queue
        ends_at = self._clock() + self._turn_s
        for _ in range(min(self._most, len(queue))):
            # It stays in the queue during its step, so that an `add` meanwhile does not schedule a second turn.
            try:
                queue[0].step()
            except Exception:
                report_fault()
            queue.popleft()
            if self._clock() >= ends_at:
                break
        if queue:
            self._loop.call_soon(self._turn)
