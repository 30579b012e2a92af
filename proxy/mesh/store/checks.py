"""Checks: finds objects that are valid by themselves but do not fit the others, such as references that lead nowhere.

A check looks at one object and, through a view, at others; it is made again only when one of these has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proxy.mesh.manifests.kind import Kind, ObjectId
from proxy.mesh.store.readers import Readers
from proxy.mesh.store.snapshot import View
from proxy.mesh.store.store import Said, Update

Check = Callable[[Any, View], Iterable[str]]
"""Yields what is odd about an object, with the name that was looked for."""


class Checks:
    __slots__ = ("_checks", "_readers", "_found")

    def __init__(self, checks: Mapping[Kind[Any], Check]) -> None:
        self._checks = checks
        self._readers: Readers[ObjectId] = Readers()
        self._found: dict[ObjectId, tuple[str, ...]] = {}

    def apply(self, update: Update) -> Update:
        """The update with the results of checks of the new state among its faults."""
        concerned = self._readers.concerned(update.touched)
        for source, key in update.touched:
            if isinstance(source, Kind) and source in self._checks:
                concerned.add(ObjectId(source, key))  # type: ignore[arg-type]
        for of in concerned:
            self._check(of, update)
        if not self._found:
            return update
        entries = update.snapshot.entries
        said = [Said(entries[of].source, text, False, of) for of, texts in self._found.items() for text in texts]
        return update._replace(faults=tuple(sorted((*update.faults, *said), key=lambda one: (one.source, one.text))))

    def _check(self, of: ObjectId, update: Update) -> None:
        entry = update.snapshot.entries.get(of)
        if entry is None:
            self._readers.forget(of)
            self._found.pop(of, None)
            return
        view = View(update.snapshot)
        texts = tuple(self._checks[of.kind](entry.model, view))
        self._readers.note(of, view.read)
        if texts:
            self._found[of] = texts
        else:
            self._found.pop(of, None)
