"""Peak EWMA that believes an endpoint which is fast again, for balancers that send probes to slow ones (tuned.py).

Peak EWMA forgets a slow answer by the time that passes, and by nothing else: after one of ten seconds an endpoint is avoided
for a minute, however fast it answers what it gets meanwhile. Here a few fast answers in a row are enough.
"""

from __future__ import annotations

from math import exp
from typing import Final

from proxy.balance.load.ewma import PeakEwma

_ENOUGH: Final = 3
"""This many answers in a row that took less than half of the estimate replace it."""


class RecoveringEwma(PeakEwma):
    __slots__ = ("_fast", "_slowest_s")

    def __init__(self, default_rtt_s: float, decay_s: float, now: float) -> None:
        super().__init__(default_rtt_s, decay_s, now)
        self._fast = 0
        self._slowest_s = 0.0
        """The longest of the fast answers in a row."""

    def observe(self, rtt_s: float, now: float) -> None:
        known_s = self._rtt_s
        if rtt_s * 2.0 > known_s:
            self._fast = 0
            self._slowest_s = 0.0
        else:
            self._fast += 1
            self._slowest_s = max(self._slowest_s, rtt_s)
            if self._fast >= _ENOUGH:
                self._rtt_s = self._slowest_s
                self._updated_at = now
                self._fast = 0
                self._slowest_s = 0.0
                return
        # PeakEwma.observe, written out: this runs for each request, and a call of the base's method costs as much again.
        if rtt_s > known_s:
            self._rtt_s = rtt_s
        else:
            elapsed = now - self._updated_at
            weight = exp(-elapsed / self._decay_s) if elapsed > 0.0 else 1.0
            self._rtt_s = known_s * weight + rtt_s * (1.0 - weight)
        self._updated_at = now
