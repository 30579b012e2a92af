"""Bounds the connections of the control plane, and ends the right one when there are too many.

A connection costs three descriptors. When no more fit, the identity with the most connections loses its oldest. All
connections without a certificate count as one identity, so that they cannot lock out those that have one.
"""

from __future__ import annotations

import logging
import resource
from asyncio import TimerHandle
from collections.abc import Callable
from typing import Final

from proxy.mesh.server.callers import Caller

_log: Final = logging.getLogger("sponson.mesh")

_DESCRIPTORS: Final = 3
"""The descriptors of one connection: its socket, the one toward grpcio, and grpcio's end of that."""

_RESERVED: Final = 100
"""Descriptors for everything else: manifests, state, the loop, grpcio's own."""

_UNLIMITED: Final = 20_000


class Visit:
    """One connection, from accept until it is gone."""

    __slots__ = ("caller", "name", "end", "ending", "group")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.name = ""
        """The name of its socket toward grpcio; empty until the handshake is done."""
        self.end: Callable[[], None] = _nothing
        self.ending: TimerHandle | None = None
        self.group = ""


class Crowd:
    __slots__ = ("_groups", "_count", "_most")

    def __init__(self, most: int | None = None) -> None:
        """`most` connections; by default what the limit of descriptors allows."""
        self._groups: dict[str, dict[Visit, None]] = {}
        """By identity, in the order of arrival."""
        self._count = 0
        self._most: Final = affordable() if most is None else most

    def __len__(self) -> int:
        return self._count

    def all(self) -> list[Visit]:
        return [visit for group in self._groups.values() for visit in group]

    def enter(self, visit: Visit) -> None:
        """A connection has come; another one may be ended for it."""
        if self._count >= self._most:
            self._make_room()
        self._groups.setdefault(visit.group, {})[visit] = None
        self._count += 1

    def prove(self, visit: Visit) -> None:
        """The connection's certificate is known: from now on it counts under its identity."""
        if visit.caller.identity and self._drop(visit):
            visit.group = visit.caller.identity
            self._groups.setdefault(visit.group, {})[visit] = None
            self._count += 1

    def leave(self, visit: Visit) -> None:
        """The connection is gone. Idempotent."""
        self._drop(visit)
        if visit.ending is not None:
            visit.ending.cancel()
            visit.ending = None

    def _drop(self, visit: Visit) -> bool:
        group = self._groups.get(visit.group)
        if group is None or visit not in group:
            return False
        del group[visit]
        if not group:
            del self._groups[visit.group]
        self._count -= 1
        return True

    def _make_room(self) -> None:
        name = max(self._groups, key=lambda name: (len(self._groups[name]), not name))
        oldest = next(iter(self._groups[name]))
        who = oldest.caller.identity or "a client without a certificate"
        _log.warning("%d connections are the most: ended the oldest of %s", self._most, who)
        self.leave(oldest)
        oldest.end()


def affordable() -> int:
    """How many connections the limit of open files allows; the limit is raised as far as may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (OSError, ValueError):
        pass
    if soft == resource.RLIM_INFINITY:
        return _UNLIMITED
    return max(1, min(_UNLIMITED, (soft - _RESERVED) // _DESCRIPTORS))


def _nothing() -> None:
    pass
