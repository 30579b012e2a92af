"""Tries: the retries of one request, and its timers.

The exchange asks it at the few points where something may be held back (http/running.py): the response of an attempt
until it is known whether the client gets it, and a copy of the request's body until then. A response that is to be
retried goes aside (http/repeat/aside.py), with the attempt that brought it; after the backoff the request takes the rule's way
once more, filters and choice of the backend included. Whatever happens, the client gets one response.
"""

from __future__ import annotations

from typing import Final

from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.head import TUNNEL, RequestHead, ResponseHead
from proxy.http.headers import Field
from proxy.http.repeat.aside import Aside, set_aside
from proxy.http.repeat.place import Place
from proxy.http.repeat.replay import Replay
from proxy.http.stream import ClientStream
from proxy.outbound.http.rescue import FAILFAST, failure_of
from proxy.outbound.http.retry.context import RetryContext
from proxy.outbound.http.retry.deadlines import Deadlines, give_up
from proxy.outbound.http.retry.policy import PASS, RETRY, UNREPEATABLE, WAIT, RetryPolicy
from proxy.outbound.http.rule import RuleStage
from proxy.policy.client import Timeouts
from proxy.policy.routes.redirect import Match


class Peeked:
    """A response that waits for its trailers."""

    __slots__ = ("head", "data")

    def __init__(self, head: ResponseHead) -> None:
        self.head: Final = head
        self.data: bytes | None = None
        """The first of its body, until this turn of the loop ends: trailers that come with it still count."""


class Tries:
    """The retries and timers of one exchange; its `tries`."""

    __slots__ = (
        "exchange", "previous", "_deadlines", "_context", "_policy", "_stage", "_head", "_match", "_retries", "_replay",
        "_peeked", "_timer", "_last", "_is_timed", "_is_waiting",
    )  # fmt: skip

    previous: Place | None
    _stage: RuleStage | None
    _head: RequestHead
    _match: Match
    _replay: Replay | None
    _peeked: Peeked | None
    _timer: Timer | None
    """Runs for the attempt's response head, or for the backoff."""
    _last: Aside | None
    """The response that was dropped last, until another attempt begins."""

    def __init__(
        self, context: RetryContext, exchange: Exchange, policy: RetryPolicy | None, timeouts: Timeouts | None = None
    ) -> None:
        """Does nothing yet; `begin` must follow."""
        self.exchange: Final = exchange
        self._context = context
        self._policy = policy
        """None once the client gets its response: nothing is retried from then on."""
        if timeouts is None:
            self._deadlines: Deadlines | None = None
            self._is_timed = policy is not None and policy.is_timed
        else:
            self._deadlines = Deadlines(exchange, context.wheel, timeouts)
            self._is_timed = True
        self.previous = self._replay = self._peeked = self._timer = self._last = None
        self._retries = 0
        self._is_waiting = False
        """The next attempt has not begun yet; the exchange counts as in flight meanwhile."""

    def begin(self, stage: RuleStage, head: RequestHead, match: Match) -> None:
        """Begin the first attempt; later ones begin with the same arguments."""
        self._stage, self._head, self._match = stage, head, match
        self.exchange.tries = self
        deadlines = self._deadlines
        if deadlines is not None:
            deadlines.begin()
        stage.route(self.exchange, head, match)

    # ---- http.running.RunningTries

    def attached(self, client: ClientStream, ends: bool) -> ClientStream:
        if self._is_timed and self.exchange.request_ended:
            self._await_head()
        policy, replay = self._policy, self._replay
        if replay is None:
            if policy is None or ends:
                return client
            # Made only now: a request whose end came with its head has no body to copy, and most requests are like
            # that.
            replay = self._replay = Replay(policy.max_request_bytes, self._context.room)
        replay.client = client
        return replay

    def request_sent(self) -> None:
        if self._is_timed and self.exchange.client is not None:  # otherwise `attached` is called later
            self._await_head()

    def holds_head(self, head: ResponseHead, end: bool) -> bool:
        if self._timer is not None:
            self._stop_timer()
        deadlines = self._deadlines
        if deadlines is not None:
            deadlines.head_came(head)
        policy = self._policy
        if policy is None:
            return False
        exchange = self.exchange
        # A tunnel that was granted is not asked for again, whatever its status.
        verdict = PASS if head.body_size == TUNNEL else policy.on_head(exchange.request, head, end)
        if verdict == WAIT:
            self._peeked = Peeked(head)
            return True
        if verdict == RETRY and exchange.request_ended and self._may_go_again(policy):
            self._drop()
            return False
        self._settle(policy, verdict)
        if deadlines is None:
            exchange.tries = None  # nothing is left to do
        return False

    def holds_data(self, data: bytes, end: bool) -> bool:
        peeked = self._peeked
        if peeked is None:
            return False
        if data and not end and peeked.data is None:
            # Held until the end of this turn only: trailers of the same read are here by then, and a stream that goes
            # on is not delayed.
            peeked.data = data
            self._context.at_turns_end(self)
        elif data or end:
            self._pass_peeked(peeked)
            self.exchange.response_data(data, end)
        return True

    def holds_trailers(self, fields: list[Field]) -> bool:
        peeked, policy = self._peeked, self._policy
        if peeked is None or policy is None:
            return False
        exchange = self.exchange
        attempt = exchange.attempt
        verdict = policy.on_trailers(exchange.request, peeked.head, fields)
        if verdict == RETRY and exchange.request_ended and self._may_go_again(policy) and isinstance(attempt, Attempt):
            self._peeked = None
            self._drop()
            self._tell(attempt, peeked)
            attempt.exchange.response_trailers(fields)
        else:
            self._pass_peeked(peeked, verdict)
            exchange.response_trailers(fields)
        return True

    def holds_failure(self, reason: Reason) -> bool:
        self._stop_timer()
        peeked = self._peeked
        if peeked is not None:
            self._pass_peeked(peeked)
            return False
        aside = self._dropped_for(reason)
        if aside is None:
            return False
        aside.fail(reason)
        return True

    def ended(self) -> None:
        self._stop_timer()
        deadlines = self._deadlines
        if deadlines is not None:
            deadlines.ended()
        self._policy = self._stage = self._peeked = self._last = None
        self._discard_replay()
        self._stop_waiting()

    # ---- called when a wait ends

    def waited_in_vain(self) -> bool:
        """No endpoint was ready in time. True: the request takes the rule's way once more, and another backend may
        take it. If none does, it is shed there with a 503, as in Linkerd; without retries the route would answer
        504.
        """
        policy, stage = self._policy, self._stage
        if policy is None or stage is None or policy.on_failfast() != RETRY or not self._is_permitted(policy):
            return False
        self._drop().cancel(Reason.CANCELLED, FAILFAST.word)
        # No endpoint has had the request, so there is no response that the client could get after all.
        self._last = None
        return True

    def turn_ended(self) -> None:
        """Called by the context: trailers that came together with the data would be here by now."""
        peeked = self._peeked
        if peeked is not None:
            self._pass_peeked(peeked)
        elif self._is_waiting and self._timer is None:
            self._again()

    # ---- deciding

    def _may_go_again(self, policy: RetryPolicy) -> bool:
        """Whether the policy permits another attempt, and some backend takes requests."""
        if not self._is_permitted(policy):
            return False
        stage = self._stage
        if stage is None or not stage.is_ready:
            policy.overflowed()
            return False
        return True

    def _is_permitted(self, policy: RetryPolicy) -> bool:
        """The request is at hand, and the policy permits one more attempt, which it counts."""
        return self._is_at_hand() and policy.permits(self._retries)

    def _is_at_hand(self) -> bool:
        """All of the request that was sent so far could be sent again."""
        replay = self._replay
        return not (replay.is_capped if replay is not None else self.exchange.is_body_sent)

    def _settle(self, policy: RetryPolicy, verdict: int) -> None:
        """The client gets the response that is here."""
        self._policy = None
        if verdict == RETRY and not (self._is_at_hand() and self.exchange.request_ended):
            # Told from RETRY: a failure that could not have been sent again pays for the retries of others, one that
            # found the budget empty does not.
            verdict = UNREPEATABLE
        policy.settled(self._retries, verdict)
        if self._replay is not None:
            self._discard_replay()

    def _discard_replay(self) -> None:
        replay = self._replay
        if replay is not None:
            self._replay = None
            replay.discard()
            exchange = self.exchange
            if exchange.client is replay:
                exchange.client = replay.client

    def _pass_peeked(self, peeked: Peeked, verdict: int = PASS) -> None:
        self._peeked = None
        policy = self._policy
        if policy is not None:
            self._settle(policy, verdict)
        attempt = self.exchange.attempt
        if isinstance(attempt, Attempt):
            self._tell(attempt, peeked)

    def _tell(self, attempt: Attempt, peeked: Peeked) -> None:
        """Pass the head, and what is here of the body, to the exchange that the attempt belongs to now."""
        attempt.response_head(peeked.head, False)
        data = peeked.data
        if data is not None:
            attempt.exchange.response_data(data, False)

    # ---- sending again

    def _dropped_for(self, reason: Reason) -> Aside | None:
        """The Aside of an attempt that got no response; None if the client is to be informed."""
        policy = self._policy
        if policy is None:
            return None
        verdict = policy.on_failure(self.exchange, reason)
        if verdict == RETRY and self._may_go_again(policy):
            return self._drop()
        self._settle(policy, verdict)
        return None

    def _drop(self) -> Aside:
        policy = self._policy
        assert policy is not None
        deadlines = self._deadlines
        if deadlines is not None:
            deadlines.attempt_dropped()
        aside = set_aside(self.exchange, self._context.wheel, self._context.clock)
        self._last = aside
        self._wait(policy)
        return aside

    def _wait(self, policy: RetryPolicy) -> None:
        wait_s = policy.wait_s(self._retries)
        self._retries += 1
        self._is_waiting = True
        # Between attempts no endpoint counts it, and the limit of requests in flight must see it all the same.
        self._context.in_flight.count += 1
        if wait_s:
            self._timer = self._context.wheel.after(wait_s, self._again)
        else:
            # The codec that brought the response finishes first, so that its connection can be used.
            self._context.at_turns_end(self)

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._context.in_flight.count -= 1

    def _again(self) -> None:
        self._timer = None
        self._stop_waiting()
        exchange, stage, policy = self.exchange, self._stage, self._policy
        if stage is None or policy is None:
            return
        last = self._last
        self._last = None
        if last is not None and not stage.is_ready and last.may_be_given():
            policy.overflowed()
            self._settle(policy, RETRY)
            last.give(exchange)
            return
        if last is not None:
            last.discard()
        policy.began()
        self.previous = exchange.endpoint
        # An error on the way must not name the endpoint of the attempt before.
        exchange.backend = exchange.endpoint = None
        try:
            stage.route(exchange, self._head, self._match)
        except Exception:
            report_fault()
            exchange.cancel(Reason.INTERNAL)

    def _await_head(self) -> None:
        """The request is sent: start the timeout of the attempt's response head."""
        policy = self._policy
        timeout_s = policy.try_timeout_s(self._retries) if policy is not None else None
        if timeout_s is not None and self._timer is None:
            self._timer = self._context.wheel.after(timeout_s, self._too_late)
        deadlines = self._deadlines
        if deadlines is not None:
            deadlines.request_sent(timeout_s is not None)

    def _too_late(self) -> None:
        self._timer = None
        policy, attempt = self._policy, self.exchange.attempt
        timeout_s = policy.try_timeout_s(self._retries) if policy is not None else None
        if isinstance(attempt, Attempt):
            attempt.has_failed = True
        aside = self._dropped_for(Reason.RESPONSE_TIMEOUT)
        if aside is None:
            give_up(self.exchange, Reason.RESPONSE_TIMEOUT, timeout_s or 0.0)
        else:
            # Given up and not awaited: what has been slow once would only hold its connection.
            aside.cancel(Reason.RESPONSE_TIMEOUT, failure_of(Reason.RESPONSE_TIMEOUT).word)

    def _stop_timer(self) -> None:
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()
