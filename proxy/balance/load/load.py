"""Load: how busy an endpoint looks to a picker; and the outcomes of work, which a load takes into account.

For every piece of work `pending` is raised by one, and then `end` is called with the outcome, or
`penalize` in its place. A failure never makes an endpoint look better: one that
refuses at once would otherwise be the fastest of all.
"""

from __future__ import annotations

from typing import Final

ANSWERED: Final = 0
"""The work was done, and its duration shows how fast the endpoint is."""
FAILED: Final = 1
"""The endpoint answered with a failure, whose duration counts only if it was long."""
BROKEN: Final = 2
"""The endpoint did not answer at all: it was not reached, or broke off."""
GIVEN_UP: Final = 3
"""Its client left: it would have taken at least as long as it had."""

BROKEN_RTT_S: Final = 1.0
"""The least duration that counts for an endpoint that did not answer at all. It is longer than most services take, so
that an endpoint that breaks off at once does not look fastest; it decays like any other estimate.
"""
MIN_RTT_S: Final = 0.001
MIN_DECAY_S: Final = 0.001
"""Replaces a decay of zero, which the control plane may send and by which the estimate would be divided."""


class Load:
    """A base class and not a Protocol, so that the compiled build calls it directly. By itself it only counts work in flight."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = 0
        """Pieces of work that have begun and not ended. Whoever gives an endpoint a piece of work adds it here."""

    def weight(self, now: float) -> float:
        """The weight by which the endpoints of one balancer are compared, in no particular unit; less is better."""
        return self.pending

    def end(self, took_s: float, now: float, outcome: int) -> None:
        """A piece of work ended after `took_s`. For work whose answer comes in parts, this is called when the first
        part has come.
        """
        self.pending -= 1

    def penalize(self, penalty_s: float, now: float) -> None:
        """A piece of work ended with a failure, for which the endpoint is to look this slow, if the load has
        penalties.
        """
        self.pending -= 1
