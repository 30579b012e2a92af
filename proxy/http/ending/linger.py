"""Linger: the codec of a connection on which everything is written, until its peer has hung up.

It answers nothing. What still comes is read and thrown away, because closing a
socket with unread bytes resets it, and a reset makes the peer lose the answer or
the GOAWAY that is under way (RFC 9112 section 9.6). Bytes and time are bounded.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer, Wheel

_HURRIED_S: Final = 1.0
"""The most time that is left when the process shuts down."""


class Linger(Codec):
    __slots__ = ("reason", "_wire", "_wheel", "_deadline", "_left", "_is_writable", "_is_hurried", "_is_over")

    def __init__(self, wire: Wire, wheel: Wheel | None, is_writable: bool, reason: Reason = Reason.COMPLETE) -> None:
        """Half-closes the wire. Without a wheel only bytes are bounded.

        A peer that broke the rules has GOAWAY_S to read the error, any other LINGER_S. The fault was counted when it was
        found; how the peer hangs up after it does not count as another.
        """
        self.reason = reason
        self._wire = wire
        self._wheel = wheel
        self._left = limits.LINGER_BYTES
        self._is_writable = is_writable
        self._is_hurried = False
        self._is_over = False
        self._deadline: Timer | None = None
        if wheel is not None:
            timeout_s = limits.LINGER_S if reason is Reason.COMPLETE else limits.GOAWAY_S
            self._deadline = wheel.after(timeout_s, self._long_enough)
        wire.hand_over(self)
        wire.end()

    def feed(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._hang_up()

    def eof(self) -> None:
        """Both directions have ended, so the wire closes itself."""
        self._end()

    def writable(self, is_writable: bool) -> None:
        self._is_writable = is_writable

    def lost(self, reason: Reason) -> None:
        self._end()

    def close(self) -> None:
        """Shutdown: a client that has its whole answer gets a moment to hang up; one that still reads it keeps its time."""
        deadline = self._deadline
        wheel = self._wheel
        if wheel is None or self._is_over:
            self._hang_up()
        elif self._is_writable and not self._is_hurried and deadline is not None:
            self._is_hurried = True
            deadline.cancel()
            self._deadline = wheel.after(_HURRIED_S, self._long_enough)

    def is_idle(self) -> bool:
        return True

    def _long_enough(self) -> None:
        """The time is over, unless the client is still busy with reading its answer."""
        self._deadline = None
        wheel = self._wheel
        if wheel is not None and not self._is_writable and self.reason is Reason.COMPLETE:
            self._deadline = wheel.after(limits.LINGER_S, self._long_enough)
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        if not self._is_over:
            self._end()
            self._wire.abort(Reason.COMPLETE)

    def _end(self) -> None:
        self._is_over = True
        deadline = self._deadline
        if deadline is not None:
            self._deadline = None
            deadline.cancel()
