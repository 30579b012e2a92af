"""Reactor: the four things of one worker that whatever waits or writes is given.

Law: made once by the worker and passed down; nobody below asks for a global
loop. `loop` is typed Any because core knows no event loop: only transport,
tls.session, control, mesh, worker and cli call it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.core.flusher import Flusher
from proxy.core.timers import Wheel

Clock = Callable[[], float]
"""Monotonic seconds."""


class Reactor:
    __slots__ = ("loop", "flusher", "wheel", "clock")

    def __init__(self, loop: Any, flusher: Flusher, wheel: Wheel, clock: Clock) -> None:
        self.loop = loop
        self.flusher = flusher
        self.wheel = wheel
        self.clock = clock
