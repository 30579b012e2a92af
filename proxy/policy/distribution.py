"""Which of a rule's backends takes the next request or connection (docs/linkerd/outbound.md, section 8.2).

A Distribution is compiled into a Chooser when a policy arrives; HTTP and opaque TCP share it, each with backends of its own
kind. Choosing never waits: of the backends that are ready now one is taken, and if none is, the caller refuses.

A rule may name a thousand backends, and to make one may open a connection. So they are made in shares; one that is drawn before
its turn is made then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import random
from typing import Any, Final, Generic, Protocol, TypeVar, assert_never

from proxy.policy.client import EMPTY, FIRST_AVAILABLE, RANDOM_AVAILABLE, Distribution, RouteBackend


class Ready(Protocol):
    @property
    def is_ready(self) -> bool: ...


B = TypeVar("B", bound=Ready)


FIRST: Final = 8
"""So many backends of one rule are made at once; the others in turns of the loop, or when one is drawn."""


class Chooser(Generic[B]):
    """Chooses one of several backends. Each is made once: in their order by `build`, or as soon as it is drawn."""

    __slots__ = ("backends", "count", "_given", "_made", "_make", "_next")

    def __init__(self, given: Sequence[RouteBackend], make: Callable[[RouteBackend], B]) -> None:
        self.backends: Final[list[B]] = []
        """Those that are made."""
        self.count: Final = len(given)
        self._given: Final = given
        self._made: Final[list[B | None]] = [None] * len(given)
        self._make: Callable[[RouteBackend], B] | None = make
        """None once no further backend may be made."""
        self._next = 0
        """All before this place are made."""

    def choose(self) -> B | None:
        """None if no backend is ready."""
        raise NotImplementedError

    @property
    def is_whole(self) -> bool:
        return self._make is None or len(self.backends) == self.count

    def build(self, most: int) -> int:
        """Make so many of those that are missing, at most; returns how many."""
        before = len(self.backends)
        while len(self.backends) < before + most and self._next < self.count:
            self._at(self._next)
            self._next += 1
        return len(self.backends) - before

    def abandon(self) -> None:
        """Another policy has come: whoever still uses this one has to do with the backends that are made."""
        self._make = None

    def _at(self, place: int) -> B | None:
        """The backend at this place; None if it may not be made any more."""
        found = self._made[place]
        make = self._make
        if found is None and make is not None:
            found = self._made[place] = make(self._given[place])
            self.backends.append(found)
        return found

    def _first_ready(self) -> B | None:
        """The first that is ready, of those that are made and, if none of them is, of a few more."""
        left = FIRST
        for place, backend in enumerate(self._made):
            if backend is None:
                if not left:
                    continue
                left -= 1
                backend = self._at(place)
            if backend is not None and backend.is_ready:
                return backend
        return None


class InOrder(Chooser[B]):
    """Chooses the first backend that is ready."""

    __slots__ = ()

    def choose(self) -> B | None:
        return self._first_ready()


class ByWeight(Chooser[B]):
    """Draws a backend by weight; if it is not ready, one of those that are is drawn. Every weight is above 0."""

    __slots__ = ("_weights", "_ends")

    def __init__(
        self, given: Sequence[RouteBackend], make: Callable[[RouteBackend], B], weights: Sequence[int]
    ) -> None:
        super().__init__(given, make)
        self._weights: Final = list(weights)
        self._ends: Final = list(accumulate(weights))
        """The sum of the weights up to each backend, itself included."""

    def choose(self) -> B | None:
        place = bisect_right(self._ends, random() * self._ends[-1])
        backend = self._made[place] or self._at(place)
        return backend if backend is not None and backend.is_ready else self._choose_other()

    def _choose_other(self) -> B | None:
        """To draw again until one is ready gives each of them a share by its weight, and so does a draw from those alone."""
        ready = [place for place, one in enumerate(self._made) if one is not None and one.is_ready]
        if not ready:
            return self._first_ready()
        ends = list(accumulate([self._weights[place] for place in ready]))
        return self._made[ready[bisect_right(ends, random() * ends[-1])]]


def compile_distribution(distribution: Distribution, make: Callable[[RouteBackend], B]) -> Chooser[B]:
    """`make` is called for each backend that may be chosen: for the first few now, for others when one is drawn or `Unmade` has
    its turn.
    """
    eligible = distribution.eligible()
    kind = distribution.kind
    found: Chooser[B]
    if kind == EMPTY or kind == FIRST_AVAILABLE:
        found = InOrder(eligible, make)
    elif kind == RANDOM_AVAILABLE:
        weights = [one.weight for one in eligible]
        # With fewer than two backends there is nothing to draw, and weights that are all 0 cannot be drawn by.
        draws = len(weights) > 1 and all(weights)
        found = ByWeight(eligible, make, weights) if draws else InOrder(eligible, make)
    else:
        assert_never(kind)
    found.build(FIRST)
    return found


class Unmade:
    """The choosers of one router whose backends are not all made yet."""

    __slots__ = ("_choosers",)

    def __init__(self) -> None:
        self._choosers: list[Chooser[Any]] = []  # of backends of any kind

    def __len__(self) -> int:
        return len(self._choosers)

    def add(self, chooser: Chooser[Any]) -> None:  # of backends of any kind
        if not chooser.is_whole:
            self._choosers.append(chooser)

    def build(self, most: int) -> int:
        """Make so many backends, at most; returns how many."""
        made = 0
        while self._choosers and made < most:
            chooser = self._choosers[-1]
            made += chooser.build(most - made)
            if chooser.is_whole:
                self._choosers.pop()
        return made

    def abandon(self) -> None:
        for chooser in self._choosers:
            chooser.abandon()
        self._choosers.clear()
