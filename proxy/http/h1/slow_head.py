"""SlowHead: the time that a client has to end a head which it has begun.

A client that says half a head and then nothing would hold its descriptor for
as long as it likes; one that is idle between requests holds it too, but can
be ended at any time when descriptors are short (core/descriptors.py).
"""

from __future__ import annotations

from typing import Protocol

from proxy.core.timers import Expires, Wheel


class Waits(Protocol):
    def head_too_slow(self) -> None: ...


class SlowHead:
    """The wheel's target; made when a head begins without its end, stopped when the end is there."""

    __slots__ = ("_server", "_deadline")

    def __init__(self, server: Waits, wheel: Wheel, timeout_s: float) -> None:
        self._server: Waits | None = server
        self._deadline: set[Expires] = wheel.arm(self, wheel.ticks(timeout_s))

    def stop(self) -> SlowHead | None:
        """Nothing is waited for any more; None, which is what its owner has of it from now on."""
        self._server = None
        self._deadline.discard(self)
        return None

    def expired(self) -> None:
        server = self._server
        if server is not None:
            self._server = None
            server.head_too_slow()
