"""Reconnect: when the connection of one endpoint is made again (docs/linkerd/balancing.md, section 8).

The first attempt is immediate; after a failure or a loss the next one
waits for the next step of the backoff, and a success starts the steps anew.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.backoff import Backoff
from proxy.core.loop.timers import Timer, Wheel


class Reconnect:
    __slots__ = ("_wheel", "_backoff", "_connect", "_failures", "_timer", "_is_stopped")

    def __init__(self, wheel: Wheel, backoff: Backoff, connect: Callable[[], None]) -> None:
        self._wheel = wheel
        self._backoff = backoff
        self._connect = connect
        """Begins one attempt; the attempt ends in `succeeded` or `lost`, now or later."""
        self._failures = 0
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self) -> None:
        self._connect()

    def succeeded(self) -> None:
        self._failures = 0

    def lost(self) -> None:
        """The attempt failed, or the connection that it made is gone."""
        if self._is_stopped or self._timer is not None:
            return
        wait_s = self._backoff.wait_s(self._failures)
        self._failures += 1
        self._timer = self._wheel.after(wait_s, self._waited)

    def _waited(self) -> None:
        self._timer = None
        if not self._is_stopped:
            self._connect()

    def part(self) -> None:
        """Stop, and release the owner."""
        self.stop()
        self._connect = _nothing

    def stop(self) -> None:
        self._is_stopped = True
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()


def _nothing() -> None:
    """Replaces the callback after `part`."""
