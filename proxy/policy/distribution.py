"""Which of a rule's backends takes the next request or connection (docs/linkerd/outbound.md, section 8.2).

A Distribution is compiled into a Chooser when a policy arrives; HTTP and opaque TCP share it, each with backends of its own
kind. Choosing never waits: of the backends that are ready now one is taken, and if none is, the caller refuses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import random
from typing import Final, Generic, Protocol, TypeVar, assert_never

from proxy.policy.client import EMPTY, FIRST_AVAILABLE, RANDOM_AVAILABLE, Distribution, RouteBackend


class Ready(Protocol):
    @property
    def is_ready(self) -> bool: ...


B = TypeVar("B", bound=Ready)


class Chooser(Generic[B]):
    """Chooses one of `backends`, which are all that may be chosen, in their order."""

    __slots__ = ("backends",)

    def __init__(self, backends: Sequence[B]) -> None:
        self.backends: Final = list(backends)

    def choose(self) -> B | None:
        """None if no backend is ready."""
        raise NotImplementedError


class InOrder(Chooser[B]):
    """Chooses the first backend that is ready."""

    __slots__ = ()

    def choose(self) -> B | None:
        for backend in self.backends:
            if backend.is_ready:
                return backend
        return None


class ByWeight(Chooser[B]):
    """Draws a backend by weight; if it is not ready, another is drawn from the rest. Every weight is above 0."""

    __slots__ = ("_weights", "_ends")

    def __init__(self, backends: Sequence[B], weights: Sequence[int]) -> None:
        super().__init__(backends)
        self._weights: Final = list(weights)
        self._ends: Final = list(accumulate(weights))
        """The sum of the weights up to each backend, itself included."""

    def choose(self) -> B | None:
        place = bisect_right(self._ends, random() * self._ends[-1])
        backend = self.backends[place]
        return backend if backend.is_ready else self._choose_other(place)

    def _choose_other(self, place: int) -> B | None:
        backends, weights = self.backends, self._weights
        while len(backends) > 1:
            backends = backends[:place] + backends[place + 1 :]
            weights = weights[:place] + weights[place + 1 :]
            ends = list(accumulate(weights))
            place = bisect_right(ends, random() * ends[-1])
            if backends[place].is_ready:
                return backends[place]
        return None


def compile_distribution(distribution: Distribution, make: Callable[[RouteBackend], B]) -> Chooser[B]:
    """`make` is called for each backend that may be chosen, in their order."""
    eligible = distribution.eligible()
    backends = [make(one) for one in eligible]
    kind = distribution.kind
    if kind == EMPTY or kind == FIRST_AVAILABLE:
        return InOrder(backends)
    if kind == RANDOM_AVAILABLE:
        weights = [one.weight for one in eligible]
        # With fewer than two backends there is nothing to draw, and weights that are all 0 cannot be drawn by.
        return ByWeight(backends, weights) if len(weights) > 1 and all(weights) else InOrder(backends)
    assert_never(kind)
