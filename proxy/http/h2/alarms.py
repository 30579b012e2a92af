"""Alarms: the deadlines of one HTTP/2 connection, on the worker's wheel.

At most one of each kind runs; none is armed per request. Without a
wheel nothing is ever late, which is what tests of frames want.
"""

from __future__ import annotations

from typing import Final, Protocol

from proxy.core.errors import report_fault
from proxy.core.timers import Expires, Wheel

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


class Alarm:
    __slots__ = ("bucket", "_rings", "_kind")

    def __init__(self, rings: Rings, kind: int) -> None:
        self.bucket: set[Expires] | None = None
        self._rings = rings
        self._kind = kind

    def expired(self) -> None:
        self.bucket = None
        try:
            self._rings.alarm(self._kind)
        except Exception:
            report_fault()


class Alarms:
    __slots__ = ("wheel", "_rings", "_armed")

    def __init__(self, rings: Rings, wheel: Wheel | None) -> None:
        self._rings: Rings = rings
        self.wheel = wheel
        self._armed: dict[int, Alarm] | None = None

    def arm(self, kind: int, timeout_s: float) -> None:
        """Nothing if that kind runs already."""
        wheel = self.wheel
        if wheel is None:
            return
        armed = self._armed
        if armed is None:
            armed = self._armed = {}
        alarm = armed.get(kind)
        if alarm is None:
            alarm = armed[kind] = Alarm(self._rings, kind)
        if alarm.bucket is None:
            alarm.bucket = wheel.arm(alarm, wheel.ticks(timeout_s))

    def disarm(self, kind: int) -> None:
        armed = self._armed
        if armed is not None:
            alarm = armed.pop(kind, None)
            if alarm is not None and alarm.bucket is not None:
                alarm.bucket.discard(alarm)

    def clear(self) -> None:
        """The connection is gone."""
        armed = self._armed
        self._armed = None
        self.wheel = None
        self._rings = _NOBODY
        if armed is not None:
            for alarm in armed.values():
                if alarm.bucket is not None:
                    alarm.bucket.discard(alarm)
