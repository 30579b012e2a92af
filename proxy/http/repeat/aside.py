"""Aside: where the rest of a response goes that its client does not get, because another attempt takes its place.

The dropped attempt goes on over an exchange of its own, so that its endpoint is counted and its
connection can be used again as if the response had been wanted: up to `limits.ASIDE_BYTES`, and for
`limits.ASIDE_S`. What came whole within that is kept until another attempt has begun: if none can,
the client gets it after all.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Clock
from proxy.core.loop.timers import Timer, Wheel
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2, ResponseHead
from proxy.http.headers import Field
from proxy.http.repeat.replay import Replay
from proxy.http.stream import ServerStream, keep

_RESETS: Final = (Reason.PEER_RESET, Reason.PEER_REFUSED)
"""An HTTP/2 client gets these as resets of its own stream; no answer is made for them."""


class Aside(ServerStream):
    """The ServerStream of an exchange that has no client, and its Observer, so that its times are known."""

    __slots__ = (
        "exchange",
        "_failed_for",
        "_timer",
        "_head",
        "_pieces",
        "_size",
        "_trailers",
        "_keeps",
        "_is_whole",
        "_closes",
    )

    def __init__(self, wheel: Wheel) -> None:
        self.exchange: Exchange | None = None
        """The exchange that the dropped attempt goes on with; None when it is over."""
        self._failed_for: Reason | None = None
        """Why there is no response; None if one came."""
        self._timer: Timer | None = wheel.after(limits.ASIDE_S, self._give_up)
        self._head: ResponseHead | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._trailers: list[Field] | None = None
        self._keeps = True
        self._is_whole = False
        self._closes = False

    def fail(self, reason: Reason) -> None:
        """The endpoint failed, and its stream is gone."""
        self._failed_for = reason
        exchange = self.exchange
        if exchange is None:
            return
        if reason in _RESETS and exchange.request.version == HTTP_2:
            # The stream is gone: to end the exchange with it in place would reset it.
            exchange.client = None
            exchange.request_reset(reason)
        else:
            exchange.response_reset(reason)

    def cancel(self, reason: Reason, word: str) -> None:
        """Give the endpoint up. `word` is the metrics' label value for the reason."""
        self._failed_for = reason
        exchange = self.exchange
        if exchange is not None:
            exchange.failure = word
            exchange.cancel(reason)

    def discard(self) -> None:
        """Another attempt begins, so the client will not get this response: drop it."""
        self._keeps = False
        self._pieces = []

    def may_be_given(self) -> bool:
        """Whether the client may get it: it came whole, or is a failure that can be passed on."""
        return self._is_whole or self._failed_for is not None

    def give(self, exchange: Exchange) -> None:
        """Answer that exchange with the response that was dropped."""
        reason, head = self._failed_for, self._head
        if reason is not None or head is None:
            exchange.response_reset(reason or Reason.CANCELLED)
            return
        if self._closes:
            exchange.server.close_connection()
        pieces, trailers = self._pieces, self._trailers
        exchange.response_head(head, not pieces and trailers is None)
        last = len(pieces) - 1
        for index, data in enumerate(pieces):
            exchange.response_data(data, index == last and trailers is None)
        if trailers is not None:
            exchange.response_trailers(trailers)

    # ---- ServerStream

    def send_informational(self, head: ResponseHead) -> None:
        """Nothing to do: no client waits for it."""

    def send_head(self, head: ResponseHead, end: bool) -> None:
        self._head = head
        if end:
            self._end(True)

    def send_data(self, data: bytes, end: bool) -> None:
        self._size += len(data)
        if self._keeps:
            keep(self._pieces, data)
        if end:
            self._end(True)
        elif self._size > limits.ASIDE_BYTES:
            self._give_up()

    def send_trailers(self, fields: list[Field]) -> None:
        self._trailers = fields
        self._end(True)

    def close_connection(self) -> None:
        self._closes = True

    def reset(self, reason: Reason) -> None:
        self._end(False)

    def pause_reading(self, cause: int) -> None:
        """Nothing to pause: no client sends here."""

    def resume_reading(self, cause: int) -> None:
        """Nothing to pause: no client sends here."""

    def _end(self, is_whole: bool) -> None:
        self._is_whole = is_whole
        self.exchange = None
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()
        if not is_whole:
            self._pieces = []

    def _give_up(self) -> None:
        exchange = self.exchange
        self._end(False)
        if exchange is not None:
            exchange.cancel(Reason.CANCELLED)


def set_aside(exchange: Exchange, wheel: Wheel, clock: Clock) -> Aside:
    """Separate the exchange from the attempt that runs for it.

    The attempt ends over the returned Aside's own exchange; whatever the endpoint still sends must be given to that one.
    """
    server = Aside(wheel)
    aside = server.exchange = Exchange(server, exchange.request, exchange.dispatched_at, clock)
    aside.request_ended, aside.request_ended_at = exchange.request_ended, exchange.request_ended_at
    aside.response_frames = exchange.response_frames
    aside.attempts = exchange.attempts
    aside.route, aside.backend, aside.endpoint = exchange.route, exchange.backend, exchange.endpoint
    aside.reset_code = exchange.reset_code
    client = exchange.client
    if isinstance(client, Replay):
        aside.client = client.client
        client.client = None
    else:
        aside.client = client
    attempt = exchange.attempt
    exchange.attempt = None
    if isinstance(attempt, Attempt):
        aside.attempt = attempt
        attempt.exchange = aside
    # Last: it pauses the client, for whose body there is no stream until the next attempt.
    exchange.detach()
    return server
