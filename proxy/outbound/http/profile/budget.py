"""SharedBudget: the budget that all retryable routes of a destination's ServiceProfile share.

It belongs to the destination and is kept when a new profile has the same terms. Otherwise a profile that changes
with every message would get a new reserve each time.
"""

from __future__ import annotations

from typing import Final

from proxy.core.loop.reactor import Clock
from proxy.outbound.http.retry.budget import Budget
from proxy.policy.profiles.profile import RetryBudget


class SharedBudget:
    __slots__ = ("terms", "_budget", "_clock")

    def __init__(self, terms: RetryBudget, clock: Clock) -> None:
        self.terms: Final = terms
        self._budget = Budget(terms.ttl_s, terms.ratio, terms.min_per_s, clock())
        self._clock = clock

    def withdraw(self) -> bool:
        """Whether there is enough for one more retry, which is taken."""
        return self._budget.withdraw(self._clock())

    def deposit(self) -> None:
        """A request that was not retried has ended: add its share to the budget."""
        self._budget.deposit(self._clock())
