"""Keepalive: PINGs of ours on a connection that is silent, and what follows if even they are not answered."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Final

from proxy.core.codec import Wire
from proxy.core.timers import Timer, Wheel
from proxy.http.h2 import frame
from proxy.http.h2.settings import H2Settings

_OPAQUE_DATA: Final = b"sponson?"
"""What our PINGs carry; any frame at all answers them."""


class Keepalive:
    """Made for a connection whose settings want it."""

    __slots__ = ("has_heard", "_wire", "_settings", "_interval_s", "_wheel", "_streams", "_on_silent", "_timer")

    def __init__(
        self, wire: Wire, settings: H2Settings, wheel: Wheel, streams: Sized, on_silent: Callable[[], None]
    ) -> None:
        """`streams` are those that are open; `on_silent` is called once, when a PING was not answered in time."""
        self.has_heard = False
        """Bytes came since the last look."""
        self._wire = wire
        self._settings = settings
        self._interval_s = settings.keepalive_interval_s or 0.0
        self._wheel = wheel
        self._streams = streams
        self._on_silent: Callable[[], None] | None = on_silent
        self._timer: Timer = wheel.after(self._interval_s, self._look)

    def stop(self) -> None:
        self._on_silent = None
        self._timer.cancel()

    def _look(self) -> None:
        if not self.has_heard and (len(self._streams) or self._settings.keepalive_while_idle):
            self._wire.write(frame.ping(_OPAQUE_DATA))
            self._timer = self._wheel.after(self._settings.keepalive_timeout_s, self._look_for_answer)
        else:
            self.has_heard = False
            self._timer = self._wheel.after(self._interval_s, self._look)

    def _look_for_answer(self) -> None:
        on_silent = self._on_silent
        if self.has_heard:
            self._look()
        elif on_silent is not None:
            self.stop()
            on_silent()
