"""TokenBudget: how many retries the requests of the last seconds have paid for (docs/linkerd/service-profiles.md, section 5.3).

Every request that ends without being retried pays in, every retry takes out, and what was paid or taken is forgotten after
the ttl, a tenth of it at a time. Nothing waits for tokens: either there are enough at this moment, or the response at hand
is the client's. One worker is one thread, so that any number of simultaneous failures take from it one after the other.
"""

from __future__ import annotations

from struct import pack, unpack
from typing import Final

from proxy.policy.profile import RetryBudget

_SLOTS: Final = 10


class TokenBudget:
    """The clock is an argument: seconds, never falling."""

    __slots__ = ("terms", "_deposit", "_withdrawal", "_reserve", "_slot_s", "_slots", "_slot", "_writing", "_since")

    def __init__(self, terms: RetryBudget, now: float) -> None:
        self.terms: Final = terms
        self._deposit: Final = 0 if terms.ratio == 0 else 1 if terms.ratio <= 1 else 1000
        self._withdrawal: Final = _withdrawal(terms.ratio)
        self._reserve: Final = terms.min_per_s * int(terms.ttl_s) * self._withdrawal
        """There at any time, so that a service with few requests can have some retried."""
        self._slot_s: Final = terms.ttl_s / _SLOTS
        self._slots: Final = [0] * _SLOTS
        self._slot = 0
        self._writing = 0
        """What this tenth of the ttl has brought so far; below 0 if more was taken."""
        self._since = now

    def deposit(self, now: float) -> None:
        """A request has ended that was not tried again."""
        self._expire(now)
        self._writing += self._deposit

    def withdraw(self, now: float) -> bool:
        """Whether there is enough for one retry, which is taken then."""
        self._expire(now)
        if self._writing + sum(self._slots) + self._reserve < self._withdrawal:
            return False
        self._writing -= self._withdrawal
        return True

    def _expire(self, now: float) -> None:
        passed_s = now - self._since
        if passed_s < self._slot_s:
            return
        slots = self._slots
        slots[self._slot] = self._writing
        self._writing = 0
        self._slot = (self._slot + 1) % _SLOTS
        # Of what has passed, the slot above has used up one; each further whole one forgets the oldest.
        for _ in range(min(int(passed_s / self._slot_s) - 1, _SLOTS)):
            slots[self._slot] = 0
            self._slot = (self._slot + 1) % _SLOTS
        self._since = now


def _withdrawal(ratio: float) -> int:
    """What one retry costs. The ratio came as a 32-bit float, and is divided as one: 1/0.1 is 10 and not 9.99."""
    if ratio == 0:
        return 1
    quotient: float = unpack("f", pack("f", (1.0 if ratio <= 1 else 1000.0) / ratio))[0]
    return int(quotient)
