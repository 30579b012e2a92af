"""TryingStage: a rule whose requests may be sent again, or may take only so long. Rules without either have none."""

from __future__ import annotations

from typing import Final

from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.outbound.http.numbers import RetryNumbers, RouteOf
from proxy.outbound.http.retry.policy import RetryPolicy, RouteRetries
from proxy.outbound.http.retry.tries import Tries
from proxy.outbound.http.rule import RuleStage
from proxy.outbound.runtime import Runtime
from proxy.policy.client import ClientRule
from proxy.policy.redirect import Match


class TryingStage:
    __slots__ = ("_inner", "_runtime", "_rule", "_of", "_policy")

    def __init__(self, inner: RuleStage, runtime: Runtime, rule: ClientRule, of: RouteOf) -> None:
        self._inner: Final = inner
        self._runtime: Final = runtime
        self._rule: Final = rule
        self._of = of
        self._policy: RetryPolicy | None = None
        """Made with the first request, as its counters are."""

    @property
    def is_ready(self) -> bool:
        return self._inner.is_ready

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        policy = self._policy or self._make_policy()
        if policy is not None and head.body_size > policy.max_request_bytes:
            policy = None  # never more than one attempt
        if policy is None:
            self._inner.route(exchange, head, match)
        else:
            Tries(self._runtime.retries, exchange, policy).begin(self._inner, head, match)

    def _make_policy(self) -> RetryPolicy | None:
        retry = self._rule.retry
        if retry is not None:
            self._policy = RouteRetries(retry, RetryNumbers(self._runtime.registry, self._of))
        return self._policy


def with_tries(inner: RuleStage, runtime: Runtime, rule: ClientRule, of: RouteOf) -> RuleStage:
    """The rule's stage, or that behind one that watches over its attempts."""
    return inner if rule.retry is None else TryingStage(inner, runtime, rule, of)
