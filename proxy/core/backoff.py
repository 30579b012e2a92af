"""Backoff: how long to wait before trying again (docs/linkerd/configuration.md, section 4.2).

Wait i is `min(min * 2**i, max)` plus a uniform random part of at most
`jitter` times that, never above max. Time and dice are arguments.
"""

from __future__ import annotations

from random import random
from typing import NamedTuple


class Backoff(NamedTuple):
    min_s: float
    max_s: float
    jitter: float

    def wait_s(self, attempt: int, dice: float | None = None) -> float:
        """The wait after `attempt` failures before this one (0 for the first); dice in [0, 1)."""
        base = min(self.min_s * 2.0 ** min(attempt, 64), self.max_s)
        return min(base + base * self.jitter * (random() if dice is None else dice), self.max_s)
