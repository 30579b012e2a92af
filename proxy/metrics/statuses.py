"""Statuses: one counter for each status that a route's or a backend's responses end with.

The counters are made when a status first comes, and found again by a number and a word, never by labels; most responses end
as the one before them did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.metrics.cells import Counter, Labels
from proxy.metrics.registry import Registry
from proxy.metrics.shown import shown_status

NO_STATUS: Final = -1
"""There was no response head, or no gRPC status in it."""

_NONE_YET: Final = -2

Spelling = Callable[[int, str], Labels]
"""Makes the labels of a status and an error in this family."""


class Statuses:
    """`labels` are those of the route or backend; they come before those that `spell` makes."""

    __slots__ = ("last_status", "last", "_registry", "_family", "_labels", "_spell", "_counters", "_seen")

    def __init__(self, registry: Registry, family: str, labels: Labels, spell: Spelling) -> None:
        self._registry: Final = registry
        self._family: Final = family
        self._labels: Final = labels
        self._spell: Final = spell
        self._counters: Final[dict[tuple[int, str], Counter]] = {}
        self._seen: Final[set[int]] = set()
        self.last_status = _NONE_YET
        self.last = Counter()
        """The counter of `last_status` without an error. Code that sees a response end like the one before may add to
        it directly.
        """

    def count(self, status: int, error: str = "") -> None:
        """`status` or NO_STATUS; `error` is empty if the response was whole."""
        if status == self.last_status and not error:
            self.last.value += 1
            return
        counter = self._counters.get((status, error)) or self._make(status, error)
        counter.value += 1
        if not error:
            self.last_status = status
            self.last = counter

    def _make(self, status: int, error: str) -> Counter:
        shown = shown_status(status, len(self._seen))
        found = self._counters.get((shown, error))
        if found is None:
            self._seen.add(shown)
            labels = (*self._labels, *self._spell(shown, error))
            found = self._counters[shown, error] = self._registry.counter(self._family, labels)
        return found
