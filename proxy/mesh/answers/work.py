"""Work: where and when answers are made.

An answer about ten thousand endpoints takes half a second, and one file may change thousands of answers. Neither
may delay clients with small questions, so long answers are made by threads, and many short ones over several turns.
Answers are made from immutable snapshots, so that a thread needs no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from proxy.blocking.errands import Errands

R = TypeVar("R")

_THREADS: Final = 4
"""How many long answers may be made at a time."""


class Work(Protocol):
    def later(self, call: Callable[[], None]) -> None:
        """Call in a later turn of the loop."""

    def beside(self, work: Callable[[], R], done: Callable[[R], None]) -> None:
        """Call `work`, which raises nothing, in a thread, and then `done` with its result on the loop."""


class AtOnce:
    """Does everything at once, for callers without a loop."""

    __slots__ = ()

    def later(self, call: Callable[[], None]) -> None:
        call()

    def beside(self, work: Callable[[], R], done: Callable[[R], None]) -> None:
        done(work())


class OnLoop:
    """Uses the running loop."""

    __slots__ = ("_loop", "_threads", "_under_way")

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._threads: Final = Errands("answers", _THREADS)
        self._under_way: set[asyncio.Task[Any]] = set()

    def later(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    def beside(self, work: Callable[[], R], done: Callable[[R], None]) -> None:
        async def run() -> None:
            done(await self._threads.run(work))

        task = self._loop.create_task(run())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
