"""Reactor: the things of one worker that whatever waits, writes or takes turns is given.

Made once by the worker and passed down; nobody below asks for a global
loop. `loop` is typed Any because core knows no event loop: only transport,
tls.handshake, control, mesh, worker and cli call it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.core.descriptors import Descriptors
from proxy.core.flusher import Flusher
from proxy.core.step_queue import StepQueue
from proxy.core.timers import Wheel

Clock = Callable[[], float]
"""Monotonic seconds."""


class Reactor:
    __slots__ = ("loop", "flusher", "wheel", "clock", "steps", "handshakes", "descriptors")

    def __init__(self, loop: Any, flusher: Flusher, wheel: Wheel, clock: Clock) -> None:
        self.loop = loop
        self.flusher = flusher
        self.wheel = wheel
        self.clock = clock
        self.descriptors = Descriptors()
        self.steps = StepQueue(loop, clock)
        """Connections, and updates of the control plane, that have more at hand than their share of one turn."""
        self.handshakes = StepQueue(loop, clock)
        """A line of their own: a step of a handshake is dear (1.5 ms of signing or verifying), and a thousand clients may
        be ready in one wake-up, behind whom no open connection should have to wait."""
