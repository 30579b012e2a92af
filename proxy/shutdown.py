"""Shutdown: the order in which a sidecar ends.

Inbound goes first, since it brings the work; outbound serves what the app calls meanwhile, new connections included,
and goes when no inbound connection is left; the admin port answers until both have ended. What was accepted is served:
a listener takes its backlog before it closes, and a connection that looks idle has `_STEP_S` in which a request that is
on its way, or in the kernel, still arrives. Linkerd's proxy closes everything at once
(docs/linkerd/admin-tap-tracing-shutdown.md, section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Final

from proxy.core.connection.drain import Drain
from proxy.core.loop.timers import Timer, Wheel
from proxy.transport.listener import Listener

_STEP_S: Final = 0.2
"""Between two looks for connections that have become idle; also how long a client has to send something before it counts
as idle."""


class Side:
    """The listeners of one side and the connections that they accepted."""

    __slots__ = ("_wheel", "_listeners", "_drain", "_steps_left", "_then", "_timer")

    def __init__(self, wheel: Wheel, listeners: Sequence[Listener], drain: Drain) -> None:
        self._wheel: Final = wheel
        self._listeners: Final = listeners
        self._drain: Final = drain
        self._steps_left = 0
        self._then: Callable[[], None] | None = None
        self._timer: Timer | None = None

    def end(self, accept_s: float, then: Callable[[], None]) -> None:
        """Go on accepting for `accept_s`, asking every client to go elsewhere; then serve what is here and nothing more.
        `then` is called when no connection is left."""
        self._then = then
        self._steps_left = ceil(accept_s / _STEP_S)
        if not self._steps_left:
            self._stop_accepting()
        self._drain.ask_to_leave()
        if self._steps_left or len(self._drain):
            self._look_later()
        else:
            self._drain.begin(self._ended)

    def stop(self) -> None:
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()

    def _step(self) -> None:
        if self._steps_left:
            self._steps_left -= 1
            if not self._steps_left:
                self._stop_accepting()
            self._drain.ask_to_leave()
        elif self._drain.is_draining:
            self._drain.look_again()
        else:
            self._drain.begin(self._ended)
        if self._then is not None:
            self._look_later()

    def _look_later(self) -> None:
        self._timer = self._wheel.after(_STEP_S, self._step)

    def _stop_accepting(self) -> None:
        for listener in self._listeners:
            listener.finish()

    def _ended(self) -> None:
        then = self._then
        self._then = None
        self.stop()
        if then is not None:
            then()


class Shutdown:
    """Inbound, outbound and admin, one after the other."""

    __slots__ = ("_inbound", "_outbound", "_admin")

    def __init__(self, inbound: Side, outbound: Side, admin: Side) -> None:
        self._inbound: Final = inbound
        self._outbound: Final = outbound
        self._admin: Final = admin

    def begin(self, accept_s: float, on_ended: Callable[[], None]) -> None:
        """The inbound side goes on accepting for `accept_s`; `on_ended` is called when nothing runs any longer."""
        self._inbound.end(accept_s, lambda: self._outbound.end(0.0, lambda: self._admin.end(0.0, on_ended)))

    def stop(self) -> None:
        for side in (self._inbound, self._outbound, self._admin):
            side.stop()
