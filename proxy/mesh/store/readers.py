"""Readers: records which reader looked at what, so that a change of the state finds the readers that it concerns."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from proxy.mesh.store.snapshot import Facet

R = TypeVar("R", bound=Hashable)


class Readers(Generic[R]):
    __slots__ = ("_of", "_read")

    def __init__(self) -> None:
        self._of: dict[Facet, set[R]] = {}
        self._read: dict[R, set[Facet]] = {}

    def note(self, reader: R, read: set[Facet]) -> None:
        """The reader looked at these entries, and no longer at any other."""
        before = self._read.get(reader, set())
        for facet in before - read:
            self._drop(reader, facet)
        for facet in read - before:
            self._of.setdefault(facet, set()).add(reader)
        self._read[reader] = read

    def forget(self, reader: R) -> None:
        for facet in self._read.pop(reader, ()):
            self._drop(reader, facet)

    def concerned(self, touched: Iterable[Facet]) -> set[R]:
        found: set[R] = set()
        for facet in touched:
            found |= self._of.get(facet, set())
        return found

    def _drop(self, reader: R, facet: Facet) -> None:
        readers = self._of[facet]
        readers.discard(reader)
        if not readers:
            del self._of[facet]
