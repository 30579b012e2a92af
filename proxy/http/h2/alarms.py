"""Alarms: the deadlines of one HTTP/2 connection, on the worker's wheel.

At most one of each kind runs; none is armed per request. Without a
wheel nothing is ever late, which is what tests of frames want.
"""

from __future__ import annotations

from typing import Final, Protocol

from proxy.core.timers import Timer, Wheel

OPENING: Final = 0
"""The preface and SETTINGS, or the rest of a header block, do not come."""
KEEPALIVE: Final = 1
"""Time to see whether the peer was heard of."""
PONG: Final = 2
"""A keepalive PING was not answered."""
STALL: Final = 3
"""Time to see whether complete responses still cannot leave."""
CLOSING: Final = 4
"""The peer does not follow our GOAWAY."""


class Rings(Protocol):
    def alarm(self, kind: int) -> None: ...


class _Nobody:
    """Whom the alarms of a lost connection would tell: they point at it no more, so that it is freed by its references."""

    __slots__ = ()

    def alarm(self, kind: int) -> None: ...


_NOBODY: Final = _Nobody()


class Alarms:
    __slots__ = ("wheel", "_rings", "_armed")

    def __init__(self, rings: Rings, wheel: Wheel | None) -> None:
        self._rings: Rings = rings
        self.wheel = wheel
        self._armed: dict[int, Timer] | None = None

    def arm(self, kind: int, timeout_s: float) -> None:
        """Nothing if that kind runs already."""
        wheel = self.wheel
        if wheel is None:
            return
        armed = self._armed
        if armed is None:
            armed = self._armed = {}
        timer = armed.get(kind)
        if timer is None or not timer.is_armed:
            armed[kind] = wheel.after(timeout_s, lambda: self._rings.alarm(kind))

    def disarm(self, kind: int) -> None:
        armed = self._armed
        if armed is not None:
            timer = armed.pop(kind, None)
            if timer is not None:
                timer.cancel()

    def clear(self) -> None:
        """The connection is gone."""
        armed = self._armed
        self._armed = None
        self.wheel = None
        self._rings = _NOBODY
        if armed is not None:
            for timer in armed.values():
                timer.cancel()
