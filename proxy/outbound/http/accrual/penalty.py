"""Penalties: what a failed response costs its endpoint in a balancer whose load is biased by failures
(docs/linkerd/balancing.md, section 3.2).

The response's head decides, and the endpoint's load ends with it; a gRPC status in trailers is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from proxy.balance.load.load import Load
from proxy.http import grpc
from proxy.http.attempt import Attempt
from proxy.http.fields.dates import seconds_until
from proxy.http.head import ResponseHead
from proxy.policy.client import LoadPolicy, PenaltyLoad

_OVERLOADED: Final = frozenset((429, 503))
_GRPC_OVERLOADED: Final = frozenset((grpc.RESOURCE_EXHAUSTED, grpc.UNAVAILABLE))
_GRPC_FAILED: Final = frozenset((grpc.UNKNOWN, grpc.DEADLINE_EXCEEDED, grpc.INTERNAL, grpc.DATA_LOSS))
_RETRY_AFTER: Final = b"retry-after"
_PUSHBACK: Final = b"grpc-retry-pushback-ms"
_MAX_DIGITS: Final = 19


class Hint(NamedTuple):
    """What a response that counts against its endpoint tells about the penalty."""

    retry_after_s: float | None
    """How long the endpoint wants to be left alone; None if it does not say, or its failure is no overload."""


def hint_of(head: ResponseHead) -> Hint | None:
    status = head.status
    if status in _OVERLOADED:
        return Hint(_retry_after_s(head))
    if status >= 500:
        return Hint(None)
    if status != 200 or not _is_grpc(head):
        return None
    found = grpc.status_of(head.fields)
    if found is None:
        return None
    if found.code in _GRPC_OVERLOADED:
        return Hint(_pushback_s(head))
    return Hint(None) if found.code in _GRPC_FAILED else None


def _is_grpc(head: ResponseHead) -> bool:
    return any(one.name == b"content-type" and one.value.startswith(grpc.CONTENT_TYPE) for one in head.fields)


def _retry_after_s(head: ResponseHead) -> float | None:
    """Whole seconds, or the time until a date; None if there is neither."""
    for one in head.fields:
        if one.name == _RETRY_AFTER:
            value = one.value.strip()
            whole = _whole(value)
            return float(whole) if whole is not None else seconds_until(value)
    return None


def _pushback_s(head: ResponseHead) -> float | None:
    for one in head.fields:
        if one.name == _PUSHBACK:
            whole = _whole(one.value.strip())
            return None if whole is None else whole / 1000.0
    return None


def _whole(value: bytes) -> int | None:
    return int(value) if value.isdigit() and len(value) <= _MAX_DIGITS else None


def penalty_s(hint: Hint, policy: PenaltyLoad) -> float:
    """The penalty of a failure: never less than the policy's own, nor more than the policy lets an endpoint ask for."""
    retry_after_s = hint.retry_after_s
    if retry_after_s is None:
        return policy.penalty_s
    return max(policy.penalty_s, min(retry_after_s, policy.max_retry_after_s))


class Penalties:
    """The penalties of one endpoint."""

    __slots__ = ("_load", "_policy", "_clock", "_penalized")

    def __init__(self, load: Load, policy: PenaltyLoad, clock: Callable[[], float]) -> None:
        self._load = load
        self._policy = policy
        self._clock = clock
        self._penalized: dict[Attempt, None] = {}
        """Attempts whose load has ended because of a penalty, and that have not ended themselves."""

    def head_came(self, attempt: Attempt, head: ResponseHead) -> None:
        hint = hint_of(head)
        if hint is not None and attempt not in self._penalized:
            self._penalized[attempt] = None
            self._load.penalize(penalty_s(hint, self._policy), self._clock())

    def end(self, attempt: Attempt, took_s: float, now: float, outcome: int) -> None:
        """The first part of the response has come, or never will: end the attempt's load, unless a penalty has ended
        it.
        """
        response = attempt.exchange.response
        if response is not None and not attempt.has_failed:
            self.head_came(attempt, response)
        if attempt not in self._penalized:
            self._load.end(took_s, now, outcome)

    def forget(self, attempt: Attempt) -> None:
        """The attempt has ended."""
        self._penalized.pop(attempt, None)


def penalties_of(load: Load, policy: LoadPolicy, clock: Callable[[], float]) -> Penalties | None:
    """The penalties of an endpoint with this load; None if its failures cost nothing."""
    return Penalties(load, policy, clock) if isinstance(policy, PenaltyLoad) else None
