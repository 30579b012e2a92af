"""RetryStage: a rule whose requests may be sent again, or may take only so long. Rules without either have none."""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.http.headers import Field
from proxy.outbound.http.numbers import RetryNumbers, RouteOf
from proxy.outbound.http.retry.overrides import NAMES, overridden
from proxy.outbound.http.retry.policy import RetryPolicy, RouteRetries
from proxy.outbound.http.retry.tries import Tries
from proxy.outbound.http.rule import RuleStage
from proxy.outbound.runtime import Runtime
from proxy.policy.client import ClientRule, Retry, Timeouts
from proxy.policy.routes.redirect import Match


class RetryPlan:
    """The retries and timeouts of one rule, or of those of its requests that override them with the same fields."""

    __slots__ = ("policy", "timeouts")

    def __init__(self, policy: RetryPolicy | None, timeouts: Timeouts | None) -> None:
        self.policy: Final = policy
        self.timeouts: Final = timeouts


class RetryStage:
    __slots__ = ("_inner", "_runtime", "_rule", "_of", "_numbers", "_usual", "_overrides")

    def __init__(self, inner: RuleStage, runtime: Runtime, rule: ClientRule, of: RouteOf) -> None:
        self._inner: Final = inner
        self._runtime: Final = runtime
        self._rule: Final = rule
        self._of = of
        self._numbers: RetryNumbers | None = None
        """Made with the first request that may be retried."""
        self._usual: RetryPlan | None = None
        self._overrides: dict[tuple[Field, ...], RetryPlan] = {}

    @property
    def is_ready(self) -> bool:
        return self._inner.is_ready

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        plan = self._usual
        if plan is None:
            plan = self._usual = self._made(self._rule.retry, self._rule.timeouts)
        if head.has_l5d and self._rule.allows_l5d_headers:
            overrides = tuple([one for one in head.fields if one.name in NAMES])
            if overrides:
                head = head.with_fields([one for one in head.fields if one.name not in NAMES])
                plan = self._overrides.get(overrides) or self._overridden(overrides)
        policy, timeouts = plan.policy, plan.timeouts
        if policy is not None and head.body_size > policy.max_request_bytes:
            policy = None  # never more than one attempt
        if policy is None and timeouts is None:
            self._inner.route(exchange, head, match)
        else:
            Tries(self._runtime.retries, exchange, policy, timeouts).begin(self._inner, head, match)

    def _made(self, retry: Retry | None, timeouts: Timeouts) -> RetryPlan:
        policy: RetryPolicy | None = None
        if retry is not None:
            numbers = self._numbers
            if numbers is None:
                numbers = self._numbers = RetryNumbers(self._runtime.registry, self._of)
            policy = RouteRetries(retry, numbers)
        return RetryPlan(policy, timeouts if timeouts != Timeouts() else None)

    def _overridden(self, overrides: tuple[Field, ...]) -> RetryPlan:
        rule = self._rule
        plan = self._made(*overridden(overrides, rule.retry, rule.timeouts))
        if sum([one.size for one in overrides]) <= limits.OVERRIDE_BYTES + 32 * len(overrides):
            if len(self._overrides) >= limits.OVERRIDES:
                self._overrides.clear()
            self._overrides[overrides] = plan
        return plan


def with_tries(inner: RuleStage, runtime: Runtime, rule: ClientRule, of: RouteOf) -> RuleStage:
    """The rule's own stage if it has neither retries nor timeouts and requests may not ask for any; else a stage in
    front of it that applies them.
    """
    if rule.retry is None and rule.timeouts == Timeouts() and not rule.allows_l5d_headers:
        return inner
    return RetryStage(inner, runtime, rule, of)
