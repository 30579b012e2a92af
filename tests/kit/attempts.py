"""Attempts for codec tests: they go to a pool, and again to that pool if repeat.py permits another try."""

from __future__ import annotations

from proxy.core.failure.reason import Reason
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.h1.pool import H1Pool
from proxy.http.pool import Pool


class ToPoolAgain:
    """An Origin with a single pool as its only endpoint."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._within_s = 0.0
        self.attempts: list[Attempt] | None = None
        """All attempts; kept only if the test puts a list here."""

    def send(self, exchange: Exchange, answer_within_s: float = 0.0) -> Attempt:
        attempt = Attempt(exchange, exchange.request, self)
        self._within_s = answer_within_s
        self._open(attempt)
        return attempt

    def _open(self, attempt: Attempt) -> None:
        if self.attempts is not None:
            self.attempts.append(attempt)
        pool = self.pool
        if self._within_s and isinstance(pool, H1Pool):
            attempt.answer_within(pool._wheel, pool._wheel.ticks(self._within_s))
        pool.open(attempt)

    def try_again(self, attempt: Attempt, reason: Reason) -> bool:
        if reason in (Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT):
            return False
        attempt.end(reason)
        again = Attempt(attempt.exchange, attempt.request, self)
        again.is_fresh = reason is not Reason.PEER_REFUSED
        self._open(again)
        return True
