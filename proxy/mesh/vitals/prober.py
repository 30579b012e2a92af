"""Prober: probes every ExternalWorkload that has probes, and reports changes.

Each address of a workload is dead as long as one of its probes fails. When a manifest changes, its probes are
followed; results of probes that did not change are kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from proxy.mesh.kinds.workloads.external_workload import EXTERNAL_WORKLOAD, ExternalWorkload
from proxy.mesh.kinds.workloads.probe import Probe
from proxy.mesh.kinds.workloads.vitals import VITALS, Vitals
from proxy.mesh.manifests.kind import Key, ObjectId
from proxy.mesh.store.snapshot import Entry, Source
from proxy.mesh.store.store import Update
from proxy.mesh.vitals.ask import ask
from proxy.mesh.vitals.count import Count

_log: Final = logging.getLogger("sponson.mesh")

AT_ONCE: Final = 200
"""The most probes that are under way at the same time."""

_BY_PROBING: Final = Source("(probed)", 0)

Publish = Callable[[Mapping[ObjectId, Entry | None]], object]


class _Patient(NamedTuple):
    """A workload that is probed."""

    probes: tuple[Probe, ...]
    ips: tuple[str, ...]
    tasks: tuple[asyncio.Task[None], ...]
    counts: tuple[tuple[str, Count], ...]
    """By address."""


class Prober:
    __slots__ = ("_publish", "_ask", "_patients", "_turn")

    def __init__(self, publish: Publish, ask_: Callable[[Probe, str], Awaitable[str]] = ask) -> None:
        self._publish = publish
        self._ask = ask_
        self._patients: dict[Key, _Patient] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)

    def apply(self, update: Update) -> None:
        """Follow the probes in the current manifests."""
        for source, key in update.touched:
            if source is EXTERNAL_WORKLOAD:
                workload = update.snapshot.one(EXTERNAL_WORKLOAD, key)  # type: ignore[arg-type]
                self._follow(key, workload)  # type: ignore[arg-type]

    def close(self) -> None:
        for patient in self._patients.values():
            for task in patient.tasks:
                task.cancel()
        self._patients.clear()

    def _follow(self, key: Key, workload: ExternalWorkload | None) -> None:
        known = self._patients.get(key)
        if known is not None:
            if workload is not None and (workload.probes, workload.ips) == (known.probes, known.ips):
                return
            for task in known.tasks:
                task.cancel()
            del self._patients[key]
            self._publish({ObjectId(VITALS, key): None})
        if workload is None or not workload.probes:
            return
        pairs = [(ip, probe, Count(probe)) for ip in workload.ips for probe in workload.probes]
        tasks = tuple(asyncio.create_task(self._watch(key, *pair)) for pair in pairs)
        counts = tuple((ip, count) for ip, _, count in pairs)
        self._patients[key] = _Patient(workload.probes, workload.ips, tasks, counts)

    async def _watch(self, key: Key, ip: str, probe: Probe, count: Count) -> None:
        await asyncio.sleep(probe.delay_s)
        while True:
            async with self._turn:
                wrong = await self._ask(probe, ip)
            if count.note(not wrong):
                name = f"ExternalWorkload {key[0]}/{key[1]}"
                if wrong:
                    _log.warning("%s is taken out: %d times in a row %s", name, probe.failures, wrong)
                else:
                    _log.info("%s is alive again at %s", name, ip)
                self._tell(key)
            await asyncio.sleep(probe.period_s)

    def _tell(self, key: Key) -> None:
        dead = tuple(dict.fromkeys(ip for ip, count in self._patients[key].counts if not count.is_alive))
        entry = Entry(ObjectId(VITALS, key), Vitals(*key, dead), _BY_PROBING, time.time())
        self._publish({entry.id: entry if dead else None})
