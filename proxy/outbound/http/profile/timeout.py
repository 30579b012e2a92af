"""RouteTimeout: the time that a route of a ServiceProfile gives a request until its response's head, retries included.

It runs from when the request is routed, so that waiting for an endpoint counts, and ends with the head that the client gets:
the body may take as long as it likes (docs/linkerd/service-profiles.md, section 5.1).
"""

from __future__ import annotations

from typing import Final

from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer, Wheel
from proxy.http import grpc
from proxy.http.exchange import Exchange
from proxy.http.head import ResponseHead
from proxy.outbound.http.duration import duration_text
from proxy.outbound.http.rescue import Failure, Rescue

_TOO_LATE: Final = Failure(504, grpc.DEADLINE_EXCEEDED, True, "response timeout")


class RouteTimeout:
    """The ResponseEditor and an Observer of one exchange, and its Rescue once the time is over."""

    __slots__ = ("_exchange", "_timeout_s", "_rescue", "_timer")

    def __init__(self, exchange: Exchange, timeout_s: float, rescue: Rescue) -> None:
        self._exchange: Exchange | None = exchange
        self._timeout_s = timeout_s
        self._rescue = rescue
        self._timer: Timer | None = None

    def arm(self, wheel: Wheel, ticks: int) -> None:
        self._timer = wheel.arm(self._expired, ticks)

    def _expired(self) -> None:
        exchange = self._exchange
        self._timer = None
        if exchange is None:
            return
        attempt = exchange.attempt
        if attempt is not None:
            # The endpoint has not failed: the client does not wait for it any longer, so nothing is counted against it.
            attempt.end(Reason.CANCELLED)
        exchange.rescue = self
        exchange.cancel(Reason.RESPONSE_TIMEOUT)

    def _over(self) -> None:
        self._exchange = None
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()

    # ---- Rescue

    @property
    def informs(self) -> bool:
        return self._rescue.informs

    def rescue(self, exchange: Exchange, reason: Reason) -> None:
        # The request took too long as a whole; the endpoint that had it last is not to blame.
        exchange.backend = exchange.endpoint = None
        self._rescue.fail(exchange, _TOO_LATE, f"HTTP response timeout after {duration_text(self._timeout_s)}", reason)

    # ---- ResponseEditor

    def edit_response(self, exchange: Exchange, head: ResponseHead) -> ResponseHead:
        self._over()
        return head

    # ---- Observer

    def response_began(self, exchange: Exchange) -> None:
        """Nothing to do: the head has come before."""

    def exchange_ended(self, exchange: Exchange) -> None:
        self._over()
