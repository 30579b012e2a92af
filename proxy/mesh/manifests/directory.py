"""Directory: the manifests as they change.

Law: a change replaces the model whole or, if anything is wrong with it, changes
nothing but the log. What the kernel does not tell (a change before it was asked
to watch, another directory put in this one's place) is seen a little later.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from watchfiles import awatch

from proxy.core.watch import Watch
from proxy.mesh.manifests.load import ManifestErrors, load
from proxy.mesh.model import Model

_log: Final = logging.getLogger("sponson.mesh")

_DEBOUNCE_MS: Final = 100
_LOOK_AGAIN_MS: Final = 2000


class Directory:
    __slots__ = ("_path", "_seen")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: list[tuple[str, int, int]] = []

    def load(self) -> Model:
        """What it says now, told to the log with its warnings; ManifestErrors if anything is wrong."""
        self._seen = _traces(self._path)
        loaded = load(self._path)
        for warning in loaded.warnings:
            _log.warning("%s", warning)
        model = loaded.model
        counts = (len(model.services), len(model.slices), len(model.workloads))
        _log.info("%s: %d services, %d endpoint slices, %d external workloads", self._path, *counts)
        return model

    async def follow(self, models: Watch[Model], stop: asyncio.Event) -> None:
        """Load anew whenever something has changed since the last `load`, until `stop`."""
        while not stop.is_set():
            try:
                async for _ in self._wake_ups(stop):
                    before = self._seen
                    if _traces(self._path) != before:
                        await self._reload(models)
                    if self._seen[:1] != before[:1]:
                        break
            except (OSError, RuntimeError):
                await self._reload(models)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _LOOK_AGAIN_MS / 1000)

    async def _reload(self, models: Watch[Model]) -> None:
        try:
            models.set(await asyncio.to_thread(self.load))
        except ManifestErrors as errors:
            for error in errors.errors:
                _log.error("%s", error)
            _log.error("the last good state stays")

    def _wake_ups(self, stop: asyncio.Event) -> AsyncIterator[object]:
        """When something changes, and every now and then; OSError or RuntimeError if it cannot be watched."""
        return awatch(
            self._path,
            stop_event=stop,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_LOOK_AGAIN_MS,
            yield_on_timeout=True,
            recursive=False,
        )


def _traces(path: Path) -> list[tuple[str, int, int]]:
    """By what a change shows: the directory itself, then its files; nothing if it cannot be read."""
    try:
        found = [(".", path.stat().st_ino, 0)]
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            stat = entry.stat()
            found.append((entry.name, stat.st_mtime_ns, stat.st_ino))
    except OSError:
        return []
    return found
