"""TLS connections over a real socket pair: half-close both ways, large writes, a slow reader. Needs SPONSON_CERTS."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from proxy.core.codec import Wire
from proxy.core.flusher import Flusher
from proxy.core.reason import Reason
from proxy.tls.session import Session

pytestmark = pytest.mark.skipif("SPONSON_CERTS" not in os.environ, reason="set SPIKE_CERTS to a folder of certificates")


class Recorder:
    """A codec that keeps what it is told."""

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


async def until(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not happen")


def test_half_close_and_backpressure() -> None:
    from proxy.app import tls_context

    async def story() -> None:
        loop = asyncio.get_running_loop()
        flusher = Flusher(loop.call_soon)
        listener = socket.create_server(("127.0.0.1", 0))
        dialled = Session(loop, flusher, tls_context(False), os.environ.get("SPIKE_NAME", "srv.ns.local"), Recorder)
        dialled.connect(listener.getsockname())
        accepted = Session(loop, flusher, tls_context(True), None, Recorder)
        accepted.accept(listener.accept()[0])
        client: Any = dialled.codec
        server: Any = accepted.codec
        dialled.write(b"the request")
        dialled.end()
        await until(lambda: server.has_eof)
        assert server.received == b"the request" and not client.has_eof
        dialled.pause_reading()
        piece = bytes(range(256)) * 256
        for _ in range(160):
            accepted.write(piece)
        await until(lambda: server.levels == [False])
        dialled.resume_reading()
        await until(lambda: server.levels == [False, True])
        accepted.end()
        await until(lambda: client.has_eof)
        assert bytes(client.received) == piece * 160
        await until(lambda: client.lost_for and server.lost_for)
        assert client.lost_for == [Reason.COMPLETE] == server.lost_for

    asyncio.run(story())
