"""Snapshot: all objects at one time, immutable, with their index; View: a snapshot that notes what is read from it.

A change makes a new snapshot that shares everything that did not change. Which entries of which tables changed is known
exactly (`touched`), and a View knows what its reader looked at, so that only questions that a change concerns are asked
again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from proxy.mesh.manifests.kind import Key, Kind, ObjectId, Resource, Table

T = TypeVar("T", bound=Resource)

Facet = tuple[Kind[Any] | Table[Any], Hashable]
"""One entry of an index: a kind and the key of an object, or a table and a key of it."""


class Source(NamedTuple):
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Entry(NamedTuple):
    """An object, with where it comes from."""

    id: ObjectId
    model: Any
    source: Source
    """Where it was last read without error."""
    since: float
    """Unix seconds of its last change."""
    is_stale: bool = False
    """Whether its manifest cannot be read any longer; this is its last good state."""


class Snapshot:
    __slots__ = ("entries", "number", "_objects", "_tables")

    def __init__(
        self,
        entries: Mapping[ObjectId, Entry],
        number: int,
        objects: dict[Kind[Any], dict[Key, Any]],
        tables: dict[Table[Any], dict[Hashable, tuple[Any, ...]]],
    ) -> None:
        self.entries: Final = entries
        self.number: Final = number
        """The number of this snapshot among those of its store."""
        self._objects = objects
        self._tables = tables

    def one(self, kind: Kind[T], key: Key) -> T | None:
        found: T | None = self._objects.get(kind, {}).get(key)
        return found

    def all(self, kind: Kind[T]) -> Iterable[T]:
        """Every object of a kind, by namespace and name."""
        objects = self._objects.get(kind, {})
        return [objects[key] for key in sorted(objects)]

    def found(self, table: Table[T], key: Hashable) -> tuple[T, ...]:
        """The objects under a key of a table, by namespace and name."""
        return self._tables.get(table, {}).get(key, ())

    def after(self, changes: Mapping[ObjectId, Entry | None]) -> tuple[Snapshot, frozenset[Facet]]:
        """The snapshot with these objects added, replaced or (None) removed, and the entries that changed by it."""
        return _Change(self).apply(changes)

    def copy_of_objects(self, kind: Kind[Any]) -> dict[Key, Any]:
        return dict(self._objects.get(kind, {}))

    def copy_of_table(self, table: Table[Any]) -> dict[Hashable, tuple[Any, ...]]:
        return dict(self._tables.get(table, {}))

    def with_changed(
        self,
        entries: Mapping[ObjectId, Entry],
        objects: Mapping[Kind[Any], dict[Key, Any]],
        tables: Mapping[Table[Any], dict[Hashable, tuple[Any, ...]]],
    ) -> Snapshot:
        return Snapshot(entries, self.number + 1, {**self._objects, **objects}, {**self._tables, **tables})


EMPTY: Final = Snapshot({}, 0, {}, {})


class _Change:
    """One step from a snapshot to the next. Tables are rebuilt only under the keys that changed objects have."""

    __slots__ = ("_before", "_entries", "_objects", "_gone", "_come", "_touched")

    def __init__(self, before: Snapshot) -> None:
        self._before = before
        self._entries = dict(before.entries)
        self._objects: dict[Kind[Any], dict[Key, Any]] = {}
        self._gone: dict[Table[Any], dict[Hashable, set[Key]]] = {}
        self._come: dict[Table[Any], dict[Hashable, dict[Key, Any]]] = {}
        self._touched: set[Facet] = set()

    def apply(self, changes: Mapping[ObjectId, Entry | None]) -> tuple[Snapshot, frozenset[Facet]]:
        for of, entry in changes.items():
            self._replace(of, entry)
        tables = {table: self._rebuilt(table) for table in {*self._gone, *self._come}}
        return self._before.with_changed(self._entries, self._objects, tables), frozenset(self._touched)

    def _replace(self, of: ObjectId, entry: Entry | None) -> None:
        old = self._entries.get(of)
        if entry is None:
            self._entries.pop(of, None)
        else:
            self._entries[of] = entry
        if old is not None and entry is not None and old.model == entry.model:
            return
        kind, key = of
        objects = self._objects.get(kind)
        if objects is None:
            objects = self._objects[kind] = self._before.copy_of_objects(kind)
        self._touched.add((kind, key))
        if old is not None:
            del objects[key]
            for table in kind.tables:
                for under in table.keys(old.model):
                    self._gone.setdefault(table, {}).setdefault(under, set()).add(key)
        if entry is not None:
            objects[key] = entry.model
            for table in kind.tables:
                for under in table.keys(entry.model):
                    self._come.setdefault(table, {}).setdefault(under, {})[key] = entry.model

    def _rebuilt(self, table: Table[Any]) -> dict[Hashable, tuple[Any, ...]]:
        rows = self._before.copy_of_table(table)
        gone, come = self._gone.get(table, {}), self._come.get(table, {})
        for under in {*gone, *come}:
            self._touched.add((table, under))
            row = _changed_row(rows.get(under, ()), gone.get(under, ()), come.get(under, {}))
            if row:
                rows[under] = row
            else:
                rows.pop(under, None)
        return rows


def _changed_row(row: tuple[Any, ...], gone: Iterable[Key], come: Mapping[Key, Any]) -> tuple[Any, ...]:
    """A row stays sorted by key. Positions are found by bisection, because a row may hold a whole namespace."""
    if not row:
        return tuple(sorted(come.values(), key=_key))
    models = list(row)
    for key in gone:
        if key not in come:
            del models[bisect_left(models, key, key=_key)]
    for key, model in come.items():
        index = bisect_left(models, key, key=_key)
        if index < len(models) and models[index].key == key:
            models[index] = model
        else:
            models.insert(index, model)
    return tuple(models)


def _key(model: Any) -> Key:
    key: Key = model.key
    return key


class View:
    """Snapshots for one reader, the first before the others; `read` is what it looked at, found or not."""

    __slots__ = ("_snapshots", "read")

    def __init__(self, *snapshots: Snapshot) -> None:
        self._snapshots = snapshots
        self.read: Final[set[Facet]] = set()

    def one(self, kind: Kind[T], key: Key) -> T | None:
        self.read.add((kind, key))
        for snapshot in self._snapshots:
            found = snapshot.one(kind, key)
            if found is not None:
                return found
        return None

    def found(self, table: Table[T], key: Hashable) -> tuple[T, ...]:
        self.read.add((table, key))
        for snapshot in self._snapshots:
            found = snapshot.found(table, key)
            if found:
                return found
        return ()
