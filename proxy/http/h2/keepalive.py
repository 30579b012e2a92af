"""Keepalive: sends PINGs on a silent connection, and ends it if they are not answered.

A peer that stops at any moment is given up after the interval, a tenth of it, and the timeout: with Linkerd's 10 s and
3 s that is within 15 s, as in hyper. No clock is read when the peer sends something.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Final

from proxy.core.codec import Wire
from proxy.core.loop.timers import Timer, Wheel
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.settings import H2Settings

_OPAQUE_DATA: Final = b"sponson?"
"""The payload of our PINGs; any frame at all counts as an answer."""
_LOOKS: Final = 10
"""Looks in one interval: the peer was silent for the interval when all of them in a row found nothing."""


class Keepalive:
    """Made for a connection whose settings ask for it."""

    __slots__ = (
        "has_heard",
        "_silent_looks",
        "_wire",
        "_settings",
        "_ticks",
        "_wheel",
        "_streams",
        "_on_silent",
        "_timer",
    )

    def __init__(
        self, wire: Wire, settings: H2Settings, wheel: Wheel, streams: Sized, on_silent: Callable[[], None]
    ) -> None:
        """`streams` are those that are open; `on_silent` is called once, when a PING was not answered in time."""
        self.has_heard = False
        """Bytes came since the last look."""
        self._silent_looks = 0
        self._wire = wire
        self._settings = settings
        # Not `wheel.ticks`, whose rounding up would be counted ten times.
        self._ticks = max(1, round((settings.keepalive_interval_s or 0.0) / _LOOKS / wheel.tick_s))
        self._wheel = wheel
        self._streams = streams
        self._on_silent: Callable[[], None] | None = on_silent
        self._timer: Timer = wheel.arm(self._look, self._ticks)

    def stop(self) -> None:
        self._on_silent = None
        self._timer.cancel()

    def _look(self) -> None:
        is_wanted = len(self._streams) or self._settings.keepalive_while_idle
        self._silent_looks = self._silent_looks + 1 if is_wanted and not self.has_heard else 0
        self.has_heard = False
        if self._silent_looks < _LOOKS:
            self._timer = self._wheel.arm(self._look, self._ticks)
        else:
            self._wire.write(frame.ping(_OPAQUE_DATA))
            self._timer = self._wheel.after(self._settings.keepalive_timeout_s, self._look_for_answer)

    def _look_for_answer(self) -> None:
        on_silent = self._on_silent
        if self.has_heard:
            self._look()
        elif on_silent is not None:
            self.stop()
            on_silent()
