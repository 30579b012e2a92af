"""Peak-EWMA: how loaded an endpoint looks (docs/linkerd/balancing.md, section 3.1).

A slow answer raises the estimate at once, a fast one lowers it slowly. It also
decays with time: each reading counts as an observation of zero. Now is an
argument, in monotonic seconds.
"""

from __future__ import annotations

from math import exp

from proxy.balance.load.load import ANSWERED, BROKEN, BROKEN_RTT_S, MIN_DECAY_S, MIN_RTT_S, Load


class PeakEwma(Load):
    __slots__ = ("_rtt_s", "_updated_at", "_decay_s")

    def __init__(self, default_rtt_s: float, decay_s: float, now: float) -> None:
        super().__init__()
        self._rtt_s = max(default_rtt_s, MIN_RTT_S)
        self._updated_at = now
        self._decay_s = max(decay_s, MIN_DECAY_S)

    def weight(self, now: float) -> float:
        """Seconds of work before the next request: the decayed estimate, times the requests in flight and this one."""
        elapsed = now - self._updated_at
        if elapsed > 0.0:
            self._rtt_s *= exp(-elapsed / self._decay_s)
            self._updated_at = now
        return self._rtt_s * (self.pending + 1)

    def end(self, took_s: float, now: float, outcome: int) -> None:
        self.pending -= 1
        if outcome == BROKEN and took_s < BROKEN_RTT_S:
            took_s = BROKEN_RTT_S
        if outcome == ANSWERED or took_s > self._rtt_s:
            self.observe(took_s, now)

    def observe(self, rtt_s: float, now: float) -> None:
        """A duration above the estimate replaces it at once; a lower one lowers it according to the time since the
        last observation.
        """
        if rtt_s > self._rtt_s:
            self._rtt_s = rtt_s
        else:
            elapsed = now - self._updated_at
            weight = exp(-elapsed / self._decay_s) if elapsed > 0.0 else 1.0
            self._rtt_s = self._rtt_s * weight + rtt_s * (1.0 - weight)
        self._updated_at = now
