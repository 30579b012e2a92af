"""Deadlines: how long a request may take (docs/linkerd/outbound.md, section 8.5).

`request` runs from when the request is routed to the end of its response, over all attempts. `response` runs, for each
attempt, from when all of the request is sent. `idle` runs while a body is under way, in either direction, and begins anew
with everything that passes. A tunnel has none of them: they end when it opens.
"""

from __future__ import annotations

import logging
from typing import Final

from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer, Wheel
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.head import TUNNEL, ResponseHead
from proxy.outbound.http.duration import duration_text
from proxy.outbound.http.rescue import Rescue, context_of, failure_of
from proxy.outbound.http.rule import BackendPlace
from proxy.policy.client import Timeouts

_log: Final = logging.getLogger(__name__)

_LOOKS: Final = 4
"""How often in its timeout a body that may be idle is looked at. So it ends a quarter late at most, and what passes
need not report to a timer.
"""

_NAMES: Final = {
    Reason.RESPONSE_TIMEOUT: "response header timeout",
    Reason.REQUEST_TIMEOUT: "request timeout",
    Reason.STREAM_TIMEOUT: "response stream timeout",
    Reason.IDLE_TIMEOUT: "idle timeout",
}


class Deadlines:
    """The deadlines of one exchange."""

    __slots__ = (
        "_exchange", "_wheel", "_timeouts", "_request", "_response", "_idle", "_sent_at", "_has_head", "_passed", "_quiet",
    )  # fmt: skip

    def __init__(self, exchange: Exchange, wheel: Wheel, timeouts: Timeouts) -> None:
        self._exchange: Final = exchange
        self._wheel = wheel
        self._timeouts = timeouts
        self._request: Timer | None = None
        self._response: Timer | None = None
        self._idle: Timer | None = None
        self._sent_at: float | None = None
        """When all of the request had gone to the running attempt."""
        self._has_head = False
        """The running attempt has brought a head. Its client may not have it yet, because the verdict waits for trailers."""
        self._passed = -1
        """The octets that had passed, both ways, at the last look."""
        self._quiet = 0
        """How many looks in a row found that nothing had passed."""

    def begin(self) -> None:
        timeouts = self._timeouts
        if timeouts.request_s is not None:
            self._request = self._wheel.after(timeouts.request_s, self._request_is_late)
        if timeouts.idle_s is not None:
            self._idle = self._wheel.after(timeouts.idle_s / _LOOKS, self._look)

    def request_sent(self, head_is_timed: bool) -> None:
        """All of the request has been sent. `head_is_timed`: another timeout is in force until the response's head
        comes.
        """
        self._sent_at = self._wheel.now_s
        response_s = self._timeouts.response_s
        # Where the attempt has a time of its own for the head, that one decides about a retry, and this one would end
        # the request.
        if response_s is not None and not head_is_timed and self._response is None:
            self._response = self._wheel.after(response_s, self._response_is_late)

    def head_came(self, head: ResponseHead) -> None:
        if head.body_size == TUNNEL:
            self.ended()
            return
        self._has_head = True
        response_s = self._timeouts.response_s
        if response_s is not None and self._response is None:
            now = self._wheel.now_s
            sent_at = now if self._sent_at is None else self._sent_at
            self._response = self._wheel.after(max(sent_at + response_s - now, 0.0), self._response_is_late)

    def attempt_dropped(self) -> None:
        """The attempt was dropped, and another one follows."""
        self._sent_at = None
        self._has_head = False
        timer = self._response
        if timer is not None:
            self._response = None
            timer.cancel()

    def ended(self) -> None:
        for timer in (self._request, self._response, self._idle):
            if timer is not None:
                timer.cancel()
        self._request = self._response = self._idle = None

    # ---- called by the wheel

    def _request_is_late(self) -> None:
        give_up(self._exchange, Reason.REQUEST_TIMEOUT, self._timeouts.request_s or 0.0)

    def _response_is_late(self) -> None:
        give_up(self._exchange, Reason.STREAM_TIMEOUT, self._timeouts.response_s or 0.0)

    def _look(self) -> None:
        exchange = self._exchange
        idle_s = self._timeouts.idle_s or 0.0
        passed = exchange.request_bytes + exchange.response_bytes
        has_body_to_come = self._has_head or not exchange.request_ended
        # A client that does not read is not idle: what would pass waits here.
        if passed != self._passed or not has_body_to_come or exchange.client is None or exchange.is_server_full:
            self._passed = passed
            self._quiet = 0
        else:
            self._quiet += 1
        if self._quiet >= _LOOKS:
            give_up(exchange, Reason.IDLE_TIMEOUT, idle_s)
        else:
            self._idle = self._wheel.after(idle_s / _LOOKS, self._look)


def give_up(exchange: Exchange, reason: Reason, timeout_s: float) -> None:
    """End the exchange with an error that names the timeout: by a 504 before the response's head, by breaking the
    response off after it.
    """
    attempt = exchange.attempt
    if isinstance(attempt, Attempt):
        attempt.has_failed = True
    what = f"{_NAMES[reason]}: {duration_text(timeout_s)}"
    if exchange.response is not None:
        _log.info("%s: timed out processing response stream: %s", context_of(exchange), what)
        exchange.failure = failure_of(reason).word
        exchange.cancel(reason)
        return
    rescue, client = exchange.rescue, exchange.client
    if isinstance(rescue, Rescue):
        if client is not None:
            exchange.client = None
            client.reset(reason)
        backend, endpoint = exchange.backend, exchange.endpoint
        within = backend.within if isinstance(backend, BackendPlace) else ""
        why = f"{endpoint.context} had it" if endpoint is not None else "no endpoint had it"
        exchange.endpoint = None  # as in Linkerd's texts, the timeout is the route's
        rescue.fail(
            exchange, failure_of(reason), f"{within}timed out waiting for response headers: {what}", reason, why
        )
    exchange.cancel(reason)
