"""SeriesTable: metric cells by labels, bounded in number; cells that are not held and have not changed for long are dropped (METRICS_RETAIN_IDLE).

A cell must be idle *and* not held, never only one of them. Held means the same as
with linkerd2-proxy's reference counts: something besides this table references
the object, so that users need not release it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from sys import getrefcount
from typing import Any, Final, Generic, TypeVar

from proxy.core import limits
from proxy.core.budget import Share
from proxy.metrics.cells import Labels
from proxy.metrics.series.bounds import Bounds

T = TypeVar("T")


def _references(cells: dict[Labels, Any], labels: Labels) -> int:
    return getrefcount(cells[labels])


_ALONE: Final = _references({(): object()}, ())
"""What `_references` returns for an object that only its table references; it depends on the interpreter."""


class SeriesTable(Generic[T]):
    """`make` makes a cell; `mark` gives a number that changes whenever the cell does; `dropped` is called for each one that is dropped."""

    __slots__ = ("cells", "_make", "_mark", "_seen", "_bounds", "_share", "_dropped")

    def __init__(
        self,
        make: Callable[[Labels], T],
        mark: Callable[[T], float],
        share: Share | None = None,
        dropped: Callable[[Labels, T], None] | None = None,
    ) -> None:
        self.cells: Final[dict[Labels, T]] = {}
        self._make: Final = make
        self._mark: Final = mark
        self._seen: Final[dict[Labels, tuple[float, float]]] = {}
        """The last mark, and when it was first seen."""
        self._bounds: Final = Bounds()
        self._share: Final = share
        self._dropped: Final = dropped

    def get(self, labels: Labels) -> T:
        found = self.cells.get(labels)
        if found is None:
            labels = self._bounds.admit(labels)
            found = self.cells.get(labels)
            if found is None:
                found = self.cells[labels] = self._make(labels)
                self._bounds.made(labels)
                if self._share is not None:
                    self._share.add(_cost(labels))
        return found

    def drop_idle(self, now: float, retain_s: float) -> None:
        """Drop all idle series at once, for tests; the worker sweeps."""
        for _ in self.sweep(now, retain_s):
            pass

    def sweep(self, now: float, retain_s: float) -> Iterator[None]:
        """The same in short steps, which do not hold up the loop."""
        for count, labels in enumerate(list(self.cells), 1):
            cell = self.cells.get(labels)
            if cell is not None:
                mark = self._mark(cell)
                del cell
                self._look_at(labels, mark, now, retain_s)
            if not count % limits.TURN_SERIES:
                yield

    def _look_at(self, labels: Labels, mark: float, now: float, retain_s: float) -> None:
        seen = self._seen.get(labels)
        if seen is None or seen[0] != mark:
            self._seen[labels] = (mark, now)
        elif now - seen[1] > retain_s and _references(self.cells, labels) <= _ALONE:
            if self._dropped is not None:
                self._dropped(labels, self.cells[labels])
            del self.cells[labels], self._seen[labels]
            self._bounds.dropped(labels)
            if self._share is not None:
                self._share.give_back(_cost(labels))


def _cost(labels: Labels) -> int:
    """The octets of a series: its labels, its cell, and its places in tables."""
    return 600 + sum([80 + len(value) for _, value in labels])
