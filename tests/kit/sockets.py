"""Real sockets on a real loop, for tests of transport and tls: a reactor, codecs that keep what they receive, and
waiting.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from proxy.core.address.addr import Addr
from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel

_never_listens = socket.socket()
_never_listens.bind(("0.0.0.0", 0))
REFUSING = Addr("127.0.0.1", _never_listens.getsockname()[1])
REFUSING_TOO = Addr("127.0.0.2", REFUSING.port)
"""An address that refuses every connect. The port is held as long as this process lives: one that was merely free
could be given to a test of another worker.
"""


class Recorder(Codec):
    """A codec that keeps the calls it gets."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.received = bytearray()
        self.has_eof = False
        self.levels: list[bool] = []
        self.lost_for: list[Reason] = []

    def feed(self, data: bytes) -> None:
        self.received += data

    def eof(self) -> None:
        self.has_eof = True

    def writable(self, is_writable: bool) -> None:
        self.levels.append(is_writable)

    def lost(self, reason: Reason) -> None:
        self.lost_for.append(reason)

    def close(self) -> None:
        pass


def is_codec(recorder: Recorder) -> Codec:
    """Shows the type checker that a Recorder is a complete Codec."""
    return recorder


class Ticking:
    """A reactor whose time passes only when the test lets it; without a loop it can only wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.now = 1000.0
        self.wheel = Wheel(0.01, self.now)
        call_soon = loop.call_soon if loop is not None else lambda callback: callback()
        self.reactor = Reactor(loop, Flusher(call_soon), self.wheel, lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wheel.advance(self.now)


def run(story: Callable[[Ticking], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine on uvloop. At its end every descriptor that it opened must be closed, and no fault
    reported.
    """

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        faults: list[Any] = []
        task = asyncio.current_task()

        def heard(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            faults.append(context)
            # The time limit of a test is an exception in whatever callback runs, which would end nothing.
            if isinstance(context.get("exception"), pytest.fail.Exception) and task is not None:
                task.cancel()

        loop.set_exception_handler(heard)
        before = await steady_descriptors(loop)
        await story(Ticking(loop))
        await until(lambda: descriptors() <= before, "descriptors return to where they were")
        assert not faults

    uvloop.run(whole())


async def steady_descriptors(loop: asyncio.AbstractEventLoop) -> int:
    """How many descriptors are open once the loop has opened those that it keeps for itself, which it does when its
    first connection has ended.
    """
    near, far = tcp_pair()
    protocol = _Closing(loop)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, near)
    transport.close()
    far.close()
    await protocol.closed
    await asyncio.sleep(0)
    return descriptors()


class _Closing(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.closed: asyncio.Future[None] = loop.create_future()

    def connection_lost(self, fault: Exception | None) -> None:
        self.closed.set_result(None)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def until(condition: Callable[[], Any], what: str = "") -> None:
    """Wait for a condition for ten seconds at most."""
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"it did not happen: {what or condition}")


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """(client, accepted) over loopback TCP; both non-blocking."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    client.setblocking(False)
    accepted.setblocking(False)
    return client, accepted
