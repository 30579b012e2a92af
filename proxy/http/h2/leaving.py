"""Leaving: how far an HTTP/2 connection is on its way to its end (RFC 9113 section 6.8). It only ever goes on.

A server shuts down with two GOAWAYs. The first announces it and still accepts every stream; when the PING
behind it is answered, the client has read it. A client has nothing to announce and begins with the second step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core import limits
from proxy.core.loop.timers import Timer, Wheel

SERVING: Final = 0
ANNOUNCED: Final = 1
"""The first GOAWAY is sent; every stream is still served."""
LAST_STREAMS: Final = 2
"""The streams that are here are served, and no others."""
OVER: Final = 3
"""Nothing more is read: the last frame is written, or the connection is lost."""
NAMES: Final = ("serving", "announced", "last streams", "over")


class Leaving:
    __slots__ = ("state", "wheel", "_timer")

    def __init__(self, wheel: Wheel | None) -> None:
        """Without a wheel nothing is ever late, which is what tests of frames want."""
        self.state = SERVING
        self.wheel = wheel
        self._timer: Timer | None = None

    def reach(self, state: int) -> bool:
        """Go on to this state; False if the connection is there already, or further."""
        if self.state >= state:
            return False
        self.state = state
        return True

    def give_time(self, on_timeout: Callable[[], None]) -> None:
        """Give the peer GOAWAY_S for its next step, unless that time runs already."""
        wheel = self.wheel
        if wheel is not None and (self._timer is None or not self._timer.is_armed):
            self._timer = wheel.after(limits.GOAWAY_S, on_timeout)

    def answered(self) -> None:
        """The peer took its step in time."""
        if self._timer is not None:
            self._timer.cancel()

    def finish(self) -> None:
        """The connection is lost, or handed over to the codec that waits for its end."""
        self.state = OVER
        self.wheel = None
        self.answered()
