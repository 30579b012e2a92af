"""Load: how busy an endpoint looks, as a picker compares it; and how a piece of work ended, as a load is told.

A load is told of every piece of work twice: `begin`, and `end` with what
happened, or `penalize` in place of `end`. A failure never makes an endpoint
look better: one that refuses at once would otherwise be the fastest of all.
"""

from __future__ import annotations

from typing import Final

ANSWERED: Final = 0
"""It was done: what it took says how fast the endpoint is."""
FAILED: Final = 1
"""The endpoint answered that it could not: what that took says something only if it was long."""
BROKEN: Final = 2
"""The endpoint did not answer at all: it was not reached, or broke off."""
GIVEN_UP: Final = 3
"""Whoever wanted it has gone: it would have taken at least so long."""

BROKEN_RTT_S: Final = 1.0
"""What an endpoint is taken for, at least, that did not answer at all. Above what most services take, so that one that breaks
off at once is not the fastest; it decays like any other estimate."""
MIN_RTT_S: Final = 0.001
MIN_DECAY_S: Final = 0.001
"""Discovery may say zero, which nothing can be divided by."""


class Load:
    """A class to inherit from, so that the compiled build calls it directly. By itself: nothing but what is under way."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = 0
        """Pieces of work that have begun and not ended."""

    def weight(self, now: float) -> float:
        """The less, the better: compared between endpoints of one balancer, in no particular unit."""
        return self.pending

    def begin(self) -> None:
        """A piece of work was given to the endpoint."""
        self.pending += 1

    def end(self, took_s: float, now: float, outcome: int) -> None:
        """It is over, after `took_s`; for work in several parts, when the first part of the answer has come."""
        self.pending -= 1

    def penalize(self, penalty_s: float, now: float) -> None:
        """It is over, with a failure for which the endpoint is to look slow by so much, if the estimate knows penalties."""
        self.pending -= 1
