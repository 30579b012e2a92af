"""Kept: cells by labels, of which those that nobody holds and nothing changed for long are dropped (METRICS_RETAIN_IDLE).

Law: idle *and* unheld, never one of them alone. Held means what it means for
linkerd2-proxy's reference counts: somebody besides this table has the
object, so that nobody needs to give anything back.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any, Final, Generic, TypeVar

from proxy.metrics.cells import Labels

T = TypeVar("T")


def _references(cells: dict[Labels, Any], labels: Labels) -> int:
    return getrefcount(cells[labels])


_ALONE: Final = _references({(): object()}, ())
"""What `_references` says of an object that only its table has; depends on the interpreter."""


class Kept(Generic[T]):
    """`make` makes a cell; `mark` gives a number that changes whenever the cell does."""

    __slots__ = ("cells", "_make", "_mark", "_seen")

    def __init__(self, make: Callable[[Labels], T], mark: Callable[[T], int]) -> None:
        self.cells: Final[dict[Labels, T]] = {}
        self._make: Final = make
        self._mark: Final = mark
        self._seen: Final[dict[Labels, tuple[int, float]]] = {}
        """The last mark, and when it was first seen."""

    def get(self, labels: Labels) -> T:
        found = self.cells.get(labels)
        if found is None:
            found = self.cells[labels] = self._make(labels)
        return found

    def drop_idle(self, now: float, retain_s: float) -> None:
        for labels in list(self.cells):
            mark = self._mark(self.cells[labels])
            seen = self._seen.get(labels)
            if seen is None or seen[0] != mark:
                self._seen[labels] = (mark, now)
            elif now - seen[1] > retain_s and _references(self.cells, labels) <= _ALONE:
                del self.cells[labels], self._seen[labels]
