"""Reactor: what one worker has for waiting, writing and sharing the loop: its loop, clock, timer wheel, flusher and queues.

The worker makes it once and passes it down; nothing below uses a global loop.
`loop` is typed Any because core knows no event loop: only transport,
tls.handshake, control, mesh, worker and cli call it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.core import limits
from proxy.core.connection.descriptors import Descriptors
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.step_queue import StepQueue
from proxy.core.loop.timers import Wheel
from proxy.core.loop.turn import Turn

Clock = Callable[[], float]
"""Monotonic seconds."""


def stopped_at(now: float) -> Clock:
    """A clock that always says the same."""
    return lambda: now


class Reactor:
    __slots__ = ("loop", "flusher", "wheel", "clock", "steps", "handshakes", "turn", "reads", "descriptors")

    def __init__(self, loop: Any, flusher: Flusher, wheel: Wheel, clock: Clock) -> None:
        self.loop = loop
        self.flusher = flusher
        self.wheel = wheel
        self.clock = clock
        self.descriptors = Descriptors()
        self.steps = StepQueue(loop, clock)
        """For connections and control-plane updates that have more to do than their share of one turn."""
        self.handshakes = StepQueue(loop, clock)
        """Handshakes have a queue of their own: a step is expensive (1.5 ms of signing or verifying), and a thousand clients
        may be ready in one wake-up; open connections should not have to wait behind them."""
        self.turn = Turn(loop, flusher, clock)
        self.reads = StepQueue(loop, clock, limits.TURN_READS, limits.TURN_READS_S)
        """Connections that were ready to be read when a turn was over."""
