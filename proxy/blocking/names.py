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


class SystemResolver:
    """To be used by one loop. `ask`, which may block, returns the addresses of a name."""

    __slots__ = ("_ask", "_errands", "_asked")

    def __init__(self, ask: Callable[[str], Iterable[str]] | None = None, at_once: int = limits.LOOKUPS) -> None:
        self._ask: Final = ask or _by_getaddrinfo
        self._errands: Final = Errands("names", at_once)
        self._asked: Final[dict[str, asyncio.Task[tuple[str, ...]]]] = {}
        """The lookups under way. Whoever asks for such a name gets its answer too: a name never takes a second thread."""

    async def addresses(self, name: str) -> tuple[str, ...]:
        """Its addresses, each once. OSError if it has none, UnicodeError if it is no name that DNS knows."""
        asked = self._asked.get(name)
        if asked is None:
            asked = self._asked[name] = asyncio.get_running_loop().create_task(self._look_up(name))
            asked.add_done_callback(_retrieved)
        return await asyncio.shield(asked)  # whoever asked first may be cancelled

    async def _look_up(self, name: str) -> tuple[str, ...]:
        try:
            found = await self._errands.run(lambda: self._ask(name))
        finally:
            del self._asked[name]
        return tuple(dict.fromkeys(found))


def _by_getaddrinfo(name: str) -> Iterable[str]:
    return [str(one[4][0]) for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


def _retrieved(asked: asyncio.Task[tuple[str, ...]]) -> None:
    """Take note of an exception that nobody waits for any more; asyncio would log it."""
    if not asked.cancelled():
        asked.exception()
