"""Store: the state that all files make together, with the last good state kept for every single object.

An object is kept as it was while its manifest is broken, and while the file that it was in has parts that cannot be
recognised, because it may be among them. If two documents claim to be the same object, the first by file and line
is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from proxy.mesh.manifests.kind import ObjectId
from proxy.mesh.store.file import FileRead, Placed
from proxy.mesh.store.snapshot import EMPTY, Entry, Facet, Snapshot, Source


class Said(NamedTuple):
    """An error as it is reported."""

    source: Source
    text: str
    is_error: bool
    of: ObjectId | None = None

    def __str__(self) -> str:
        return f"{self.source}: {self.text}" if self.source.line else f"{self.source.file}: {self.text}"


class Update(NamedTuple):
    """The effect of a change of files on the state."""

    snapshot: Snapshot
    touched: frozenset[Facet]
    faults: tuple[Said, ...]
    """All errors now, by file and line."""
    may_restrict: bool
    """Whether something that could not be used may forbid something."""


class Store:
    __slots__ = ("snapshot", "_now", "_files", "_claims", "_held", "_duplicates", "_faults", "_restricting")

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: Unix seconds."""
        self.snapshot = EMPTY
        self._now = now
        self._files: dict[str, FileRead] = {}
        self._claims: dict[ObjectId, dict[str, list[tuple[int, Any]]]] = {}
        self._held: dict[str, set[ObjectId]] = {}
        """File → objects that are kept only because parts of it cannot be made out."""
        self._duplicates: dict[ObjectId, tuple[Said, ...]] = {}
        self._faults: dict[str, tuple[Said, ...]] = {}
        """The faults of files that have any."""
        self._restricting: set[str] = set()
        """Files with something that could not be used and may forbid something."""

    def update(self, files: Mapping[str, FileRead | None]) -> Update:
        """The state after these files were read, or (None) were removed."""
        affected: set[ObjectId] = set()
        for file, read in files.items():
            affected |= self._replace(file, read)
        changes: dict[ObjectId, Entry | None] = {}
        for of in affected:
            old, new = self.snapshot.entries.get(of), self._resolve(of)
            if new != old:
                changes[of] = new
        touched: frozenset[Facet] = frozenset()
        if changes:
            self.snapshot, touched = self.snapshot.after(changes)
        return Update(self.snapshot, touched, self._all_faults(), bool(self._restricting))

    def _replace(self, file: str, read: FileRead | None) -> set[ObjectId]:
        """Replace a file's old claims by its new ones. Returns the objects that this may change."""
        before = self._files.pop(file, None)
        self._faults.pop(file, None)
        self._restricting.discard(file)
        if read is not None:
            self._files[file] = read
            faults = tuple(_faults_of(read))
            if faults:
                self._faults[file] = faults
            if any(placed.read.may_restrict for placed in read.chunks):
                self._restricting.add(file)
        old, new = _placed(before), _placed(read)
        affected = self._held.pop(file, set())
        for placed in old.keys() - new.keys():
            for claim in old[placed].read.claims:
                claims = self._claims[claim.id][file]
                claims.remove((placed[0] + claim.line, claim.model))
                affected.add(claim.id)
        for placed in new.keys() - old.keys():
            for claim in new[placed].read.claims:
                self._claims.setdefault(claim.id, {}).setdefault(file, []).append((placed[0] + claim.line, claim.model))
                affected.add(claim.id)
        return affected

    def _resolve(self, of: ObjectId) -> Entry | None:
        old = self.snapshot.entries.get(of)
        placed = self._places(of)
        if not placed:
            return self._missing(of, old)
        source, model = placed[0]
        if len(placed) > 1:
            text = f"{of} is already defined at {source}"
            self._duplicates[of] = tuple(Said(other, text, True, of) for other, _ in placed[1:])
        else:
            self._duplicates.pop(of, None)
        if model is None:
            return old._replace(is_stale=True) if old is not None else None
        if old is not None and old.model == model:
            return Entry(of, old.model, source, old.since)
        return Entry(of, model, source, self._now())

    def _places(self, of: ObjectId) -> list[tuple[Source, Any]]:
        """Where an object is claimed, in order; forgets files that no longer claim it."""
        by_file = self._claims.get(of)
        if by_file is None:
            return []
        for file in [file for file, claims in by_file.items() if not claims]:
            del by_file[file]
        if not by_file:
            del self._claims[of]
        found = [(Source(file, line), model) for file, claims in by_file.items() for line, model in claims]
        return sorted(found, key=lambda pair: pair[0])

    def _missing(self, of: ObjectId, old: Entry | None) -> Entry | None:
        """No file has the object any longer: decide whether it was removed, or only cannot be read."""
        self._duplicates.pop(of, None)
        if old is None:
            return None
        read = self._files.get(old.source.file)
        if read is None or read.is_whole:
            return None
        self._held.setdefault(read.file, set()).add(of)
        return old._replace(is_stale=True)

    def _all_faults(self) -> tuple[Said, ...]:
        found = [said for faults in self._faults.values() for said in faults]
        found += [said for faults in self._duplicates.values() for said in faults]
        return tuple(sorted(found, key=lambda said: (said.source, said.text)))


def _placed(read: FileRead | None) -> dict[tuple[int, int], Placed]:
    """The chunks of a file by place and identity; a chunk that is the same in two readings has the same key."""
    return {} if read is None else {(placed.offset, id(placed.read)): placed for placed in read.chunks}


def _faults_of(read: FileRead) -> Iterable[Said]:
    if read.fault:
        yield Said(Source(read.file, 0), read.fault, True)
    for offset, chunk in read.chunks:
        for of, fault in chunk.faults:
            yield Said(Source(read.file, offset + fault.line), str(fault), fault.is_error, of)


FIRST: Final = Update(EMPTY, frozenset(), (), False)
