"""Giving a connected socket to the loop, which tells its protocol object of it in a later turn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

_adopting: Final[set[asyncio.Task[object]]] = set()
"""Keeps tasks alive: a loop has only weak references to them."""


def adopt(
    loop: asyncio.AbstractEventLoop, protocol: object, sock: socket.socket, on_adopted: Callable[[str], None]
) -> None:
    """`on_adopted` is called once: with an empty text after `connection_made`, or with what the loop had against the socket."""

    def done(task: asyncio.Task[object]) -> None:
        _adopting.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            sock.close()
        on_adopted("" if error is None else str(error) or type(error).__name__)

    factory: Any = lambda: protocol  # noqa: E731  Any: no compiled class can be an asyncio.Protocol by name
    task = loop.create_task(loop.connect_accepted_socket(factory, sock))
    _adopting.add(task)
    task.add_done_callback(done)
