"""Effort: what the expressions of policies may cost the loop for one request, however many there are.

An octet of a text usually costs a nanosecond, and at worst five for each instruction of the expression that it is tried on. The two
are so far apart that counting steps (octets times instructions) alone would refuse requests which cost nothing. So steps are
counted first, and while they are few nothing else is done. Beyond that the thread's own CPU time is looked at before each
further piece of work; it does not move while other processes have the core.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Final, Protocol

from proxy.core import limits


class TooCostlyError(Exception):
    """To go on would hold the loop; the text says at what. No route takes the request."""


class Spent:
    """What all requests of this process have cost beyond their first steps."""

    __slots__ = ("s",)

    def __init__(self) -> None:
        self.s = 0.0
        """CPU seconds. A codec that has read a head sees whether it grew by more than `limits.TURN_MATCH_S`; if so it reads
        no further head in this turn."""


spent: Final = Spent()


class Effort:
    """What one request may still cost. All tables that it is looked up in share it."""

    __slots__ = ("_clock", "_left", "_began_s", "_used_s")

    def __init__(self, clock: Callable[[], float] = thread_time) -> None:
        self._clock = clock
        self._left: int = limits.MATCH_LOOK_STEPS
        """Steps until the clock is looked at."""
        self._began_s = -1.0
        """When the clock was first looked at in this search; negative before that."""
        self._used_s = 0.0
        """What earlier searches of this request have used."""

    def spend(self, steps: int, of: str) -> None:
        """To be called before each piece of work. TooCostlyError, which names `of`, if the request has cost enough or this
        piece alone could hold the loop.
        """
        self._left -= steps
        if self._left < 0:
            self._look(steps, of)

    def rest(self) -> None:
        """A search is over, found or not; time passes that is not its own."""
        if self._began_s >= 0.0:
            used_s = self._clock() - self._began_s
            self._began_s = -1.0
            self._used_s += used_s
            spent.s += used_s

    def _look(self, steps: int, of: str) -> None:
        self._left = limits.MATCH_LOOK_STEPS
        if steps > limits.MATCH_STEPS:
            raise TooCostlyError(f"{of} could take too long on so long a text")
        now_s = self._clock()
        if self._began_s < 0.0:
            self._began_s = now_s
        if self._used_s + now_s - self._began_s > limits.MATCH_S:
            raise TooCostlyError(f"{of} came when others had taken {limits.MATCH_S * 1000:g} ms")


class Routed(Protocol):
    """A request, as far as it is known here."""

    effort: Effort | None


def effort_of(routed: Routed) -> Effort:
    """What it may still cost to find the request's routes, in all tables together."""
    effort = routed.effort
    if effort is None:
        effort = routed.effort = Effort()
    return effort
