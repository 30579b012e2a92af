"""Left: whether a client that has ended its side of an HTTP/1 connection still gets its answer.

An end looks the same from a client that has gone and from one that only has no more to say, so the answer is awaited.
What may be waited for in vain has a limit, the one of opaque connections that are half closed: an app that does not heed the end that
it was passed, and never answers, would hold both connections for ever.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer, Wheel
from proxy.http.exchange import Exchange


class Left:
    __slots__ = ("_exchange", "_wheel", "_timer", "_moved_bytes")

    def __init__(self, exchange: Exchange, wheel: Wheel | None) -> None:
        """Resets the exchange once nothing has come of its answer for `limits.HALF_CLOSED_S`, or up to twice that time;
        never without a wheel.
        """
        self._exchange: Final = exchange
        self._wheel: Final = wheel
        self._timer: Timer | None = None
        self._moved_bytes = exchange.response_bytes
        self._wait()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if self._wheel is not None:
            self._timer = self._wheel.after(limits.HALF_CLOSED_S, self._look)

    def _look(self) -> None:
        exchange = self._exchange
        before, self._moved_bytes = self._moved_bytes, exchange.response_bytes
        if self._moved_bytes != before:
            self._wait()
        else:
            exchange.server.reset(Reason.PEER_CLOSED)
            exchange.request_reset(Reason.PEER_CLOSED)
