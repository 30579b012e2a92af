"""Load: how busy an endpoint looks, as a picker compares it; and how a piece of work ended, as a load is told.

A load is told of every piece of work twice: `begin`, and `end` with what
happened. A failure never makes an endpoint look better: one that refuses at
once would otherwise be the fastest of all.
"""

from __future__ import annotations

from typing import Final, Protocol

ANSWERED: Final = 0
"""It was done: what it took says how fast the endpoint is."""
FAILED: Final = 1
"""The endpoint answered that it could not: what that took says something only if it was long."""
BROKEN: Final = 2
"""The endpoint did not answer at all: it was not reached, or broke off."""
GIVEN_UP: Final = 3
"""Whoever wanted it has gone: it would have taken at least so long."""


class Load(Protocol):
    def weight(self, now: float) -> float:
        """The less, the better: compared between endpoints of one balancer, in no particular unit."""

    def begin(self) -> None:
        """A piece of work was given to the endpoint."""

    def end(self, took_s: float, now: float, outcome: int) -> None:
        """It is over, after `took_s`; for work in several parts, when the first part of the answer has come."""
