"""An event loop in a thread of its own, for servers that run beside a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from proxy.core.address.addr import Addr

_T = TypeVar("_T")
_DEADLINE_S: Final = 10.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Background:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._serving: set[object] = set()
        """Keeps tasks alive: asyncio itself holds no reference to a task that only waits."""
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, story: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine to its end in the loop's thread."""
        return asyncio.run_coroutine_threadsafe(story, self._loop).result(_DEADLINE_S)

    def listen(self, serve: Serve, port: int = 0) -> Addr:
        """Serve each connection until `serve` returns, or ends by OSError or the loop's end, and then close it."""

        async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            self._serving.add(task)
            try:
                await serve(reader, writer)
            except (OSError, EOFError, asyncio.CancelledError):
                pass
            finally:
                self._serving.discard(task)
                writer.close()

        async def listening() -> Addr:
            server = await asyncio.start_server(whole, "127.0.0.1", port, backlog=512)
            return Addr(*server.sockets[0].getsockname()[:2])

        return self.run(listening())

    def close(self) -> None:
        async def finish() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.run(finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE_S)
        self._loop.close()
