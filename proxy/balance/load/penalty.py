"""Peak-EWMA with penalties: an endpoint that fails looks as slow as its penalty says, however fast it failed
(docs/linkerd/balancing.md, section 3.2). Now is an argument, in monotonic seconds.
"""

from __future__ import annotations

from math import exp, inf

from proxy.balance.load.load import BROKEN, BROKEN_RTT_S, FAILED, MIN_DECAY_S, MIN_RTT_S, Load


class Ewma:
    """A moving average that reading does not change. It begins at infinity, which any value replaces."""

    __slots__ = ("_decay_s", "_value", "_at")

    def __init__(self, decay_s: float, now: float) -> None:
        self._decay_s = max(decay_s, MIN_DECAY_S)
        self._value = inf
        self._at = now

    def reset(self, value: float, now: float) -> None:
        self._value = value
        self._at = now

    def at(self, now: float) -> float:
        """The value as it has decayed by then."""
        if now <= self._at or self._value == inf:
            return self._value
        return self._value * exp((self._at - now) / self._decay_s)

    def add(self, value: float, now: float) -> None:
        """Blend it in, by the time that has passed since the last; ignored if none has."""
        elapsed_s = now - self._at
        if elapsed_s <= 0.0:
            return
        if self._value == inf:
            self._value = value
        else:
            alpha = 1.0 - exp(-elapsed_s / self._decay_s)
            self._value = self._value * (1.0 - alpha) + value * alpha
        self._at = now

    def add_peak(self, value: float, now: float) -> None:
        """A value above what the average has decayed to takes its place at once; a lower one is blended in."""
        if self.at(now) > value and self._value != inf:
            self.add(value, now)
        elif self.at(now) != value:
            self.reset(value, now)


class PenaltyEwma(Load):
    __slots__ = ("_rtt_s",)

    def __init__(self, default_rtt_s: float, decay_s: float, now: float) -> None:
        super().__init__()
        self._rtt_s = Ewma(decay_s, now)
        self._rtt_s.reset(max(default_rtt_s, MIN_RTT_S), now)

    def weight(self, now: float) -> float:
        return self._rtt_s.at(now) * (self.pending + 1)

    def end(self, took_s: float, now: float, outcome: int) -> None:
        self.pending -= 1
        if outcome == BROKEN:
            took_s = max(took_s, BROKEN_RTT_S, self._rtt_s.at(now))
        elif outcome == FAILED:
            took_s = max(took_s, self._rtt_s.at(now))
        self._rtt_s.add_peak(took_s, now)

    def penalize(self, penalty_s: float, now: float) -> None:
        self.pending -= 1
        self._rtt_s.add_peak(max(penalty_s, self._rtt_s.at(now)), now)
