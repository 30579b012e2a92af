"""Breakers of HTTP endpoints: makes the one that a policy asks for, and turns ends of attempts into outcomes.

A response counts as its route classifies it (docs/linkerd/balancing.md, section 6.1). An endpoint that did not answer in
time has failed too. (Linkerd drops such a request above its balancers, which do not see it.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, assert_never

from proxy.balance.breaker import FAILURE, RATE_LIMITED, SUCCESS, UNKNOWN, Breaker, Consecutive, Judge, Shutter, Unified
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http import grpc
from proxy.http.attempt import Attempt
from proxy.metrics.scope import Ended
from proxy.policy import client
from proxy.policy.client import ConsecutiveFailures, FailureAccrual

_TOO_MANY_REQUESTS: Final = 429
_RESOURCE_EXHAUSTED: Final = str(grpc.RESOURCE_EXHAUSTED)
_RACED: Final = (Reason.PEER_CLOSED, Reason.CONNECTION_RESET)


def breaker_of(
    accrual: FailureAccrual | None, gate: Shutter, wheel: Wheel, on_change: Callable[[str], None]
) -> Breaker | None:
    """The breaker of one endpoint, open; None if nothing takes the endpoint out of use."""
    return None if accrual is None else Breaker(gate, _judge_of(accrual), wheel, accrual.backoff, on_change)


def _judge_of(accrual: FailureAccrual) -> Judge:
    if isinstance(accrual, ConsecutiveFailures):
        return Consecutive(accrual.max_failures)
    if isinstance(accrual, client.Unified):
        return Unified(
            accrual.max_consecutive_failures, accrual.success_rate_threshold, accrual.min_requests, accrual.window_s
        )
    assert_never(accrual)


def outcome_of(attempt: Attempt, ended: Ended | None, reason: Reason) -> int:
    """What an attempt means for its endpoint's breaker. `ended` is its class; None if its client had left or there was
    no response.
    """
    if attempt.has_failed:
        # A connection that its peer closed just as a request was sent over it does not count, if another attempt takes over.
        is_raced = reason in _RACED and attempt.exchange.reason is None and not attempt.is_fresh
        return UNKNOWN if is_raced else FAILURE
    if ended is None:
        return UNKNOWN
    if not ended.is_success:
        return FAILURE
    if ended.status == _TOO_MANY_REQUESTS or ended.grpc_status == _RESOURCE_EXHAUSTED:
        return RATE_LIMITED
    return SUCCESS
