"""SystemResolver: the addresses of a name by getaddrinfo, which follows the hosts file and whatever else the system is set up for.

getaddrinfo blocks until it has an answer or has given up, which takes half a minute where name servers are silent, and
cannot be interrupted. So each name has a thread of its own: one whose servers do not answer delays no other name, nor the
end of the process.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Final

from proxy.blocking.errands import Errands
from proxy.core import limits


class _Lookup:
    """One name that is being asked for, or waits for a thread."""

    __slots__ = ("task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[tuple[str, ...] | None] | None = None
        self.waiting = 0
        """How many want to know; read by the thread too."""


class SystemResolver:
    """To be used by one loop. `ask`, which may block, returns the addresses of a name."""

    __slots__ = ("_ask", "_errands", "_asked")

    def __init__(self, ask: Callable[[str], Iterable[str]] | None = None, at_once: int = limits.LOOKUPS) -> None:
        self._ask: Final = ask or _by_getaddrinfo
        self._errands: Final = Errands("names", at_once)
        self._asked: Final[dict[str, _Lookup]] = {}
        """The lookups under way. Whoever asks for such a name gets its answer too: a name never takes a second thread."""

    async def addresses(self, name: str) -> tuple[str, ...]:
        """Its addresses, each once. OSError if it has none, UnicodeError if it is no name that DNS knows."""
        while True:
            lookup = self._asked.get(name)
            if lookup is None:
                lookup = self._asked[name] = _Lookup()
                lookup.task = asyncio.get_running_loop().create_task(self._look_up(name, lookup))
                lookup.task.add_done_callback(_retrieved)
            assert lookup.task is not None
            lookup.waiting += 1
            try:
                found = await asyncio.shield(lookup.task)  # whoever asked first may be cancelled
            finally:
                lookup.waiting -= 1
            if found is not None:
                return found

    async def _look_up(self, name: str, lookup: _Lookup) -> tuple[str, ...] | None:
        """None if it was given up before its turn came, so that it was not asked for."""
        try:
            return await self._errands.run(lambda: tuple(dict.fromkeys(self._ask(name))) if lookup.waiting else None)
        finally:
            del self._asked[name]


def _by_getaddrinfo(name: str) -> Iterable[str]:
    return [str(one[4][0]) for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


def _retrieved(asked: asyncio.Task[tuple[str, ...] | None]) -> None:
    """Take note of the exception of a lookup that was given up; asyncio would log it."""
    if not asked.cancelled():
        asked.exception()
