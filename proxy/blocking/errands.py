"""Errands: blocking work, done by threads that are not waited for at the end of the process.

A process waits for asyncio's own executor, and for libuv's threads, when it ends, so that one name server that does not
answer would delay it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

R = TypeVar("R")


class Errands:
    """Daemon threads that take one errand after another from one queue; a loop may stop without waiting for them.

    Each thread is started when there is work and no thread is free, up to `threads` of them.
    """

    __slots__ = ("_name", "_most", "_threads", "_free", "_work")

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name: Final = name
        self._most: Final = threads
        self._threads = 0
        self._free: Final = threading.Semaphore(0)
        """Counts the threads that wait for work and have none coming."""
        self._work: Final[queue.SimpleQueue[Callable[[], None]]] = queue.SimpleQueue()

    async def run(self, work: Callable[[], R]) -> R:
        """The result of `work`, which a thread calls; an exception is raised here. To be called from one loop only."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[R] = loop.create_future()

        def settle(result: R | None, error: Exception | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def call() -> None:
            result, error = None, None
            try:
                result = work()
            except Exception as caught:
                error = caught
            self._free.release()  # before the result is known, so that the next errand needs no other thread
            if not loop.is_closed():
                _post(loop, settle, result, error)

        if not self._free.acquire(blocking=False) and self._threads < self._most:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._threads += 1
        self._work.put(call)
        return await done

    def _run(self) -> None:
        while True:
            self._work.get()()


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any) -> None:
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:  # the loop was closed between
        pass
