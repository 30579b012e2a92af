"""Budget: how many retries all requests of a ServiceProfile's routes may have together (docs/linkerd/service-profiles.md, section 5.3).

Requests that are not retried deposit, retries withdraw; deposits and withdrawals are forgotten after `ttl_s`, and a
reserve of so many retries a second is always there. Time is an argument; taking and asking are one step, so that any
number of requests that fail at once never get more than there is.
"""

from __future__ import annotations

from typing import Final

_SLOTS: Final = 10


class Budget:
    __slots__ = ("_deposit", "_withdrawal", "_reserve", "_slot_s", "_slots", "_at", "_writer", "_since")

    def __init__(self, ttl_s: float, ratio: float, min_per_s: int, now: float) -> None:
        """`ratio`: retries for each request; `min_per_s`: retries that are always allowed. The values are valid
        (section 5.3 has the ranges).
        """
        if ratio <= 0.0:
            self._deposit, self._withdrawal = 0, 1
        elif ratio <= 1.0:
            self._deposit, self._withdrawal = 1, int(1.0 / ratio)
        else:
            self._deposit, self._withdrawal = 1000, int(1000.0 / ratio)
        self._reserve: Final = min_per_s * int(ttl_s) * self._withdrawal
        self._slot_s: Final = ttl_s / _SLOTS
        self._slots = [0] * _SLOTS
        self._at = 0
        """The index of the slot that is written next."""
        self._writer = 0
        """Deposits less withdrawals since `_since`, which are not in a slot yet."""
        self._since = now

    def deposit(self, now: float) -> None:
        """A request that was not retried has ended."""
        self._expire(now)
        self._writer += self._deposit

    def withdraw(self, now: float) -> bool:
        """Take one retry from the budget; False if there is not enough."""
        self._expire(now)
        # Asked and taken without a step between: were it asked first and taken when the retry begins, all requests that
        # fail in one turn would find the same credit.
        if self._writer + sum(self._slots) + self._reserve < self._withdrawal:
            return False
        self._writer -= self._withdrawal
        return True

    def _expire(self, now: float) -> None:
        passed_s = now - self._since
        if passed_s < self._slot_s:
            return
        slots = self._slots
        # In slots, so that memory stays the same however many requests there are; what expires does so a tenth at a
        # time.
        slots[self._at] = self._writer
        self._writer = 0
        self._at = (self._at + 1) % _SLOTS
        left_s = passed_s - self._slot_s
        for _ in range(_SLOTS):
            if left_s <= self._slot_s:
                break
            slots[self._at] = 0
            self._at = (self._at + 1) % _SLOTS
            left_s -= self._slot_s
        self._since = now
