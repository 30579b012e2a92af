"""Names: what the external names of services resolve to, looked up by the system again and again.

In a cluster DNS answers such a service with an alias. Here its endpoints are the addresses of that name. A name
that is itself a service of the mesh stands for that service, and needs no resolving (answers/endpoints.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from proxy.mesh.kinds.services.resolved import RESOLVED, Resolved
from proxy.mesh.kinds.services.service import SERVICE
from proxy.mesh.manifests.kind import Key, ObjectId
from proxy.mesh.model import CLUSTER_DOMAIN
from proxy.mesh.store.snapshot import Entry, Source
from proxy.mesh.store.store import Update

_log: Final = logging.getLogger("sponson.mesh")

PERIOD_S: Final = 30.0
"""The system's resolver gives no lifetimes; CoreDNS' answers live as long by default."""

_BY_RESOLVING: Final = Source("(resolved)", 0)

Publish = Callable[[Mapping[ObjectId, Entry | None]], object]
Resolve = Callable[[str], Awaitable[tuple[str, ...]]]


class Names:
    __slots__ = ("_publish", "_resolve", "_tasks")

    def __init__(self, publish: Publish, resolve: Resolve) -> None:
        self._publish = publish
        self._resolve = resolve
        self._tasks: dict[Key, tuple[str, asyncio.Task[None]]] = {}

    def apply(self, update: Update) -> None:
        """Follow the names in the current manifests."""
        for source, key in update.touched:
            if source is SERVICE:
                service = update.snapshot.one(SERVICE, key)  # type: ignore[arg-type]
                self._follow(key, "" if service is None else service.external_name)  # type: ignore[arg-type]

    def close(self) -> None:
        for _, task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _follow(self, key: Key, name: str) -> None:
        known = self._tasks.get(key)
        if known is not None:
            if known[0] == name:
                return
            known[1].cancel()
            del self._tasks[key]
            self._publish({ObjectId(RESOLVED, key): None})
        if name and not name.endswith(f".{CLUSTER_DOMAIN}"):
            self._tasks[key] = (name, asyncio.create_task(self._watch(key, name)))

    async def _watch(self, key: Key, name: str) -> None:
        known: tuple[str, ...] = ()
        failed = ""
        while True:
            try:
                found = await self._resolve(name)
            except (OSError, UnicodeError) as error:
                # The known addresses stay, so that a name server that is away for a moment ends no traffic.
                if str(error) != failed:
                    _log.warning("Service %s/%s: %s cannot be resolved: %s", *key, name, error)
                failed = str(error)
            else:
                failed = ""
                if found != known:
                    known = found
                    of = ObjectId(RESOLVED, key)
                    self._publish({of: Entry(of, Resolved(*key, found), _BY_RESOLVING, time.time())})
            await asyncio.sleep(PERIOD_S)
