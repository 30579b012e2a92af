"""Which frames may come next: SETTINGS first (RFC 9113 section 3.4), a header block without interruption (section 4.3).

What is begun has to be ended in time: a peer that stays silent after half a header block, or before its SETTINGS, would
hold a connection for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer, Wheel
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.frame import ACK, END_HEADERS

ANY: Final = 0
_SETTINGS: Final = -1


class Sequence:
    __slots__ = ("awaited", "flags", "_octets", "_frames", "_wheel", "_timer")

    def __init__(self, wheel: Wheel | None) -> None:
        self.awaited = _SETTINGS
        """ANY frame, the first SETTINGS, or else the number of the stream that must go on with CONTINUATION."""
        self.flags = 0
        """The flags of the HEADERS frame whose block is open."""
        self._octets = b""
        self._frames = 0
        self._wheel = wheel
        self._timer: Timer | None = None

    def check(self, kind: int, flags: int, stream_id: int) -> None:
        """Called for each frame unless `awaited` is ANY."""
        if self.awaited == _SETTINGS:
            if kind != frame.SETTINGS or flags & ACK:
                raise ProtocolError("the first frame is not SETTINGS")
            self.awaited = ANY
            self._complete()
        elif kind != frame.CONTINUATION or stream_id != self.awaited:
            raise ProtocolError("header block interrupted")

    def begin(self, octets: bytes, flags: int, stream_id: int, on_timeout: Callable[[], None]) -> None:
        """A header block that CONTINUATION goes on with."""
        self.awaited = stream_id
        self.flags = flags
        self._octets = octets
        self._frames = 0
        self.await_in_time(on_timeout)

    def proceed(self, octets: bytes, flags: int) -> bytes | None:
        """CONTINUATION; the whole block, if it is its last."""
        if self.awaited <= 0:
            raise ProtocolError("CONTINUATION without HEADERS")
        self._frames += 1
        if len(self._octets) + len(octets) > limits.HEADER_BLOCK_BYTES or self._frames > limits.CONTINUATIONS:
            raise ProtocolError("header block without end", Reason.HEADER_FLOOD)
        self._octets += octets
        if not flags & END_HEADERS:
            return None
        whole = self._octets
        self._octets = b""
        self.awaited = ANY
        self._complete()
        return whole

    def await_in_time(self, on_timeout: Callable[[], None]) -> None:
        """What is awaited must come within OPENING_S."""
        wheel = self._wheel
        if wheel is not None:
            self._timer = wheel.after(limits.OPENING_S, on_timeout)

    def stop(self) -> None:
        """The connection is over."""
        self._octets = b""
        self._complete()

    def _complete(self) -> None:
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()
