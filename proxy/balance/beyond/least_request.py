"""Least request: the load of an endpoint is the number of requests it has, however fast it answers them.

It is meant for work where one request does not show how long the next will take. Linkerd's balancers have only peak EWMA.
"""

from __future__ import annotations

from proxy.balance.load.load import BROKEN, BROKEN_RTT_S, Load


class LeastRequest(Load):
    """An endpoint that does not answer at all has nothing to do and would be given everything: for a second after each
    such failure it counts as busier than any other."""

    __slots__ = ("_broken_until",)

    def __init__(self) -> None:
        super().__init__()
        self._broken_until = 0.0

    def weight(self, now: float) -> float:
        return self.pending + (1_000_000.0 if now < self._broken_until else 0.0)

    def end(self, took_s: float, now: float, outcome: int) -> None:
        self.pending -= 1
        if outcome == BROKEN:
            self._broken_until = now + BROKEN_RTT_S
