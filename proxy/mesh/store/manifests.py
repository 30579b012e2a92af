"""Manifests: a directory as a stream of snapshots.

Reading happens in a thread of its own and never on the loop, which stays free to answer and to stop: the thread is a
daemon, so that a process that was asked to end does not wait for it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from watchfiles import awatch

from proxy.blocking.errands import Errands
from proxy.mesh.manifests.reading import Catalog
from proxy.mesh.store.checks import Checks
from proxy.mesh.store.file import File, FileRead
from proxy.mesh.store.folder import Folder, Look
from proxy.mesh.store.snapshot import Source
from proxy.mesh.store.store import FIRST, Said, Store, Update

_log: Final = logging.getLogger("sponson.mesh")

_STEP_MS: Final = 5
_DEBOUNCE_MS: Final = 50
_LOOK_AGAIN_S: Final = 2.0
"""How often links are looked at, and changes that the kernel did not report."""

_LIST_AGAIN: Final = 5
"""After this many looks at links the whole directory is listed."""


class Rules(NamedTuple):
    """What is refused at the start, and what is only reported."""

    is_strict: bool = False
    """Whether any error, and any kind that is not read, is refused."""
    allows_unenforced: bool = False
    """Whether an object that forbids something and cannot be used may be left out."""


class ManifestErrors(Exception):
    """Why a directory cannot be served; `faults` by file and line."""

    def __init__(self, faults: tuple[Said, ...], because: str = "") -> None:
        super().__init__("\n".join([*map(str, faults), *filter(None, [because])]))
        self.faults: Final = faults


class Reader:
    """The directory, its files and the store; belongs to one thread at a time."""

    __slots__ = ("folder", "_files", "_catalog", "_store", "_checks", "_odd")

    def __init__(self, directory: Path, catalog: Catalog, now: Callable[[], float] = time.time) -> None:
        self.folder: Final = Folder(str(directory))
        self._files: dict[str, File] = {}
        self._catalog = catalog
        self._store = Store(now)
        self._checks = Checks(catalog.checks)
        self._odd: tuple[tuple[str, str], ...] = ()

    def read(self, names: set[str] | None = None) -> tuple[Update | None, float | None]:
        """The state after these files have changed, if they changed it, and when to look again; OSError if there is no
        directory.
        """
        look = self.folder.look(names)
        if not (look.read or look.gone) and look.odd == self._odd:
            return None, look.again_s
        self._odd = look.odd
        update = self._checks.apply(self._store.update(self._changed(look)))
        odd = tuple(Said(Source(file, 0), f"{what}: ignored", False) for file, what in look.odd)
        return update._replace(faults=(*update.faults, *odd)), look.again_s

    def _changed(self, look: Look) -> dict[str, FileRead | None]:
        changed: dict[str, FileRead | None] = {}
        for file in look.gone:
            self._files.pop(file, None)
            changed[file] = None
        for file in look.read:
            known = self._files.get(file)
            if known is None:
                known = self._files[file] = File(file, self._catalog)
            changed[file] = known.read()
        return changed

    def read_all(self) -> Update:
        """Read everything, once it is still; ManifestErrors if there is no such directory."""
        update: Update | None = None
        try:
            found, again_s = self.read()
            update = found
            while again_s is not None:
                time.sleep(again_s)
                found, again_s = self.read(set())
                update = found or update
        except OSError as error:
            said = Said(Source(self.folder.path, 0), f"cannot be read: {error.strerror or error}", True)
            raise ManifestErrors((said,)) from None
        return update or FIRST


def load(directory: Path, catalog: Catalog, rules: Rules = Rules()) -> Update:  # noqa: B008 (a frozen value)
    """Read a directory as the server does at its start; ManifestErrors if it would not start."""
    update = Reader(directory, catalog).read_all()
    check(update, rules)
    return update


def check(update: Update, rules: Rules) -> None:
    """ManifestErrors if a server may not start from this: no client may be let in because a policy could not be read."""
    if rules.is_strict and update.faults:
        raise ManifestErrors(update.faults)
    if update.may_restrict and not rules.allows_unenforced:
        errors = tuple(said for said in update.faults if said.is_error)
        raise ManifestErrors(errors, "without these policies more would be let in (--allow-unenforced goes on)")


class Manifests:
    """A directory that is followed, for a loop."""

    __slots__ = ("_reader", "_thread", "_rules", "_told", "_names", "_wake")

    def __init__(self, directory: Path, catalog: Catalog, rules: Rules) -> None:
        self._reader = Reader(directory, catalog)
        self._thread = Errands("manifests")
        self._rules = rules
        self._told: frozenset[Said] = frozenset()
        self._names: set[str] = set()
        self._wake = asyncio.Event()

    async def open(self) -> Update:
        """The first state; ManifestErrors if it may not be served."""
        update = await self._thread.run(self._read_first)
        self._tell(update)
        check(update, self._rules)
        _log.info("%s: %s", self._reader.folder.path, counts(update))
        return update

    def _read_first(self) -> Update:
        """Reading makes many objects that stay, so the collector pauses meanwhile and never looks at them again."""
        gc.disable()
        try:
            return self._reader.read_all()
        finally:
            gc.freeze()
            gc.enable()

    async def follow(self, publish: Callable[[Update], object], stop: asyncio.Event) -> None:
        """Publish the state after every change, until `stop`."""
        watching = asyncio.create_task(self._watch(stop))
        await asyncio.sleep(0)  # the kernel watches from now on, so that changes during the first look are reported
        looks = 0
        delay_s: float = 0.0
        try:
            while not stop.is_set():
                if delay_s > 0:
                    await self._woken(delay_s)
                names, self._names = self._names, set()
                looks += 1
                is_full = looks % _LIST_AGAIN == 1 or "" in names
                delay_s = await self._look(None if is_full else names, publish)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _look(self, names: set[str] | None, publish: Callable[[Update], object]) -> float:
        """Read and publish what changed. Returns the time until the next look, if the kernel reports nothing before."""
        reader = self._reader
        try:
            update, again_s = await self._thread.run(
                lambda: reader.read(None if names is None else {*names, *reader.folder.links})
            )
        except OSError as error:
            self._say(Said(Source(reader.folder.path, 0), f"cannot be read: {error.strerror or error}", True))
            return _LOOK_AGAIN_S
        if update is not None:
            self._tell(update)
            publish(update)
        return _LOOK_AGAIN_S if again_s is None else again_s

    async def _woken(self, delay_s: float) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), delay_s)
        except TimeoutError:
            pass
        self._wake.clear()

    async def _watch(self, stop: asyncio.Event) -> None:
        """Note the names that the kernel reports; an empty name stands for the whole directory."""
        path = self._reader.folder.path
        while not stop.is_set():
            try:
                watched = awatch(
                    path, watch_filter=None, stop_event=stop, debounce=_DEBOUNCE_MS, step=_STEP_MS, recursive=False,
                    rust_timeout=int(_LOOK_AGAIN_S * 1000), yield_on_timeout=True,
                )  # fmt: skip
                inode = self._reader.folder.inode
                async for changes in watched:
                    self._names |= {_name_in(path, name) for _, name in changes}
                    self._wake.set()
                    if self._reader.folder.inode != inode:
                        break
            except (OSError, RuntimeError):
                await asyncio.sleep(_LOOK_AGAIN_S)
            self._names.add("")
            self._wake.set()

    def _tell(self, update: Update) -> None:
        """Log new errors, and those that are gone."""
        faults = frozenset(update.faults)
        for said in update.faults:
            if said not in self._told:
                self._say(said)
        if self._told and not any(said.is_error for said in faults) and any(said.is_error for said in self._told):
            _log.info("%s: in good order again", self._reader.folder.path)
        elif any(said.is_error for said in faults - self._told):
            _log.error("what is wrong is left out; where it was good before, the last good state stays")
        self._told = faults

    def _say(self, said: Said) -> None:
        _log.log(logging.ERROR if said.is_error else logging.WARNING, "%s", said)


def _name_in(path: str, reported: str) -> str:
    """A file's name in the directory; empty for the directory itself. Paths are reported whole, even where the directory
    was given as `manifests`, `./manifests` or `manifests/`."""
    return "" if os.path.normpath(reported) == os.path.abspath(path) else os.path.basename(reported)


def counts(update: Update) -> str:
    """`3 Services, 1 EndpointSlice`"""
    found: dict[str, int] = {}
    for of in update.snapshot.entries:
        found[of.kind.name] = found.get(of.kind.name, 0) + 1
    return (
        ", ".join(f"{number} {name}{'' if number == 1 else 's'}" for name, number in sorted(found.items())) or "empty"
    )
