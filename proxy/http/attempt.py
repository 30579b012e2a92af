"""Attempt: one try of a request at one endpoint. Client codecs speak to it, and to its exchange, and know nothing of repeating.

It begins with the request as it was routed and keeps a head of its own for
what the endpoint is to get, so that another attempt begins with the same
request. It ends once: with its exchange, or before it when repeat.py lets
another attempt take its place.
"""

from __future__ import annotations

from typing import Final, Protocol

from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer, Wheel
from proxy.http.ending.replies import without_proxy_marks
from proxy.http.exchange import Exchange
from proxy.http.head import TUNNEL, RequestHead, ResponseHead
from proxy.http.repeat import repeat
from proxy.http.repeat.repeat import BEGUN
from proxy.http.stream import RunningAttempt

NOTED_STATUS: Final = 429


class Target(Protocol):
    """The endpoint of an attempt, or whatever else counts attempts."""

    def edit_response(self, attempt: Attempt, head: ResponseHead) -> ResponseHead:
        """The endpoint's response head as the exchange is to get it; never edits the one that it was given. Asked of heads
        that carry fields of the mesh (`has_l5d`), and of those that speak against their endpoint (from NOTED_STATUS on)."""

    def attempt_answered(self, attempt: Attempt) -> None:
        """The response's first bytes came, or it ended without any; at most once."""

    def attempt_ended(self, attempt: Attempt, reason: Reason) -> None:
        """Called once for every attempt that was given this target."""


class Origin(Protocol):
    """The stage that chose the endpoint and can choose another."""

    def try_again(self, attempt: Attempt, reason: Reason) -> bool:
        """Begin another attempt in place of this one, which ended for `reason`; False if there is nothing to try."""


class AttemptNumbers(Protocol):
    """Counts the attempts of a backend."""

    def attempt_became_tunnel(self, attempt: Attempt, response: ResponseHead) -> None:
        """The attempt was answered by opening a tunnel; as a response it is over."""

    def attempt_ended(self, attempt: Attempt) -> None:
        """Called when the attempt ends together with its exchange, but not for an attempt that another one replaced."""


class Attempt(RunningAttempt):
    __slots__ = (
        "exchange",
        "request",
        "head",
        "target",
        "origin",
        "numbers",
        "sent_at",
        "has_begun",
        "has_failed",
        "is_fresh",
        "deadline",
        "_is_over",
    )

    def __init__(self, exchange: Exchange, request: RequestHead, origin: Origin | None = None) -> None:
        exchange.attempts += 1
        self.exchange = exchange
        self.request = request
        """The request as it was routed; another attempt begins with the same."""
        self.head = request
        """The head in the form that the endpoint gets."""
        self.target: Target | None = None
        """Its endpoint, which is informed of the attempt's progress once this attempt is the exchange's `attempt`; the
        endpoint sets both.
        """
        self.origin = origin
        self.numbers: AttemptNumbers | None = None
        self.sent_at = exchange.dispatched_at
        """When it was given to its endpoint: later than `dispatched_at` if it waited for one, or is not the first."""
        self.has_begun = False
        """The target's `attempt_answered` was called."""
        self.has_failed = False
        """The endpoint failed. If this is False and the attempt ended without a response, the client had left."""
        self.is_fresh = False
        """Whether it uses a connection that has carried no request before."""
        self.deadline: Timer | None = None
        """Armed while a response head is awaited."""
        self._is_over = False

    def answer_within(self, wheel: Wheel, ticks: int) -> None:
        """It fails with RESPONSE_TIMEOUT unless a response head comes within so many ticks from now."""
        self.deadline = wheel.arm(self._too_late, ticks)
        self.exchange.attempt = self

    def _too_late(self) -> None:
        self.deadline = None
        self.has_failed = True
        self.exchange.cancel(Reason.RESPONSE_TIMEOUT)

    @property
    def is_over(self) -> bool:
        """Its exchange no longer waits for it."""
        return self._is_over or self.exchange.reason is not None

    # ---- called by codecs, which give the rest of a response to the exchange itself

    def response_head(self, head: ResponseHead, end: bool) -> None:
        deadline = self.deadline
        if deadline is not None:
            self.deadline = None
            deadline.cancel()
        tries = self.exchange.tries
        if tries is not None and tries.holds_head(head, end):
            return
        target = self.target
        if target is not None:
            if head.has_l5d or head.status >= NOTED_STATUS:
                head = target.edit_response(self, head)
        elif head.has_l5d:
            head = without_proxy_marks(head)
        self.exchange.response_head(head, end)
        if head.body_size == TUNNEL and self.numbers is not None:
            self.numbers.attempt_became_tunnel(self, head)

    def response_reset(self, reason: Reason, code: int = 0, progress: int = BEGUN) -> None:
        """The endpoint failed, and its stream is gone; `code` is HTTP/2's, `progress` says whether the request can have been
        begun there (repeat.py)."""
        exchange = self.exchange
        if self._is_over or exchange.reason is not None:
            return
        ends_with_client = repeat.ends_with_client(exchange, reason)
        self.has_failed = not ends_with_client
        exchange.unpark()
        exchange.reset_code = code
        origin = self.origin
        if ends_with_client and exchange.clock() - self.sent_at > repeat.RACE_S:
            progress = BEGUN
        if progress != BEGUN and origin is not None and repeat.may_repeat(exchange, progress):
            exchange.detach()
            if origin.try_again(self, reason):
                return
        if ends_with_client:
            exchange.client = None  # its stream is gone
            exchange.server.reset(reason)  # the client sees the end that it would see without a proxy
            exchange.request_reset(reason)
            return
        tries = exchange.tries
        if tries is not None and tries.holds_failure(reason):
            return
        exchange.response_reset(reason)

    # ---- the exchange

    def answered(self) -> None:
        if not self._is_over:
            self.has_begun = True
            target = self.target
            if target is not None:
                target.attempt_answered(self)

    def end(self, reason: Reason) -> None:
        if not self._is_over:
            self._is_over = True
            deadline = self.deadline
            if deadline is not None:
                self.deadline = None
                deadline.cancel()
            target = self.target
            if target is not None:
                target.attempt_ended(self, reason)
            numbers = self.numbers
            if numbers is not None:
                numbers.attempt_ended(self)

    def __repr__(self) -> str:
        return f"Attempt {self.exchange.attempts} of {self.exchange!r}"
