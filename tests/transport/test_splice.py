"""Bulk data that the kernel moves: the same bytes, the same ends, and no descriptor is kept for a connection that only
waits.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from typing import Any

import pytest

from proxy.core.connection.descriptors import Descriptors
from proxy.core.connection.meter import Meter
from proxy.core.failure.reason import Reason
from proxy.transport.relay import RelayEnd
from proxy.transport.splice import SPLICE_AFTER_BYTES
from tests.kit.sockets import Ticking, descriptors, run, until
from tests.transport.test_connection import received, reset
from tests.transport.test_relay import Path

BULK = random.Random(1).randbytes(4 << 20)


async def spliced(path: Path) -> tuple[socket.socket, int]:
    """The app's end of a relay that has begun to splice, which its descriptors show, and how many bytes it had
    received.
    """
    path.client.send(b"x")
    app = await path.app()
    loop = asyncio.get_running_loop()
    await until(lambda: path.relays[0].accepted.received_bytes == 1)
    before = descriptors()
    sent, came = 1, 0
    while descriptors() == before:
        await loop.sock_sendall(path.client, BULK[:100_000])
        sent += 100_000
        while came < sent:
            came += len(await loop.sock_recv(app, 1 << 20))
        assert sent < 100 * SPLICE_AFTER_BYTES
    assert descriptors() == before + 4 and sent >= SPLICE_AFTER_BYTES
    return app, sent


def test_the_same_bytes_and_a_clean_end_after_it() -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking)
        app, sent = await spliced(path)
        path.client.setblocking(True)

        def push() -> None:
            for _ in range(8):
                path.client.sendall(BULK)
            path.client.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=push)
        thread.start()
        assert await received(app) == BULK * 8
        thread.join()
        path.client.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(app, b"answer")
        app.close()
        assert await received(path.client) == b"answer"
        path.client.close()
        assert await path.over() == [RelayEnd(Reason.COMPLETE, sent + 8 * len(BULK), 6)]

    run(story)


@pytest.mark.parametrize("who", ["client", "app"])
def test_a_reset_during_it(who: str) -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking)
        app, _ = await spliced(path)
        breaker, other = (path.client, app) if who == "client" else (app, path.client)
        reset(breaker)
        with pytest.raises(ConnectionResetError):
            await received(other)
        other.close()
        [end] = await path.over()
        assert end.reason is Reason.CONNECTION_RESET

    run(story)


def test_an_abort_during_it() -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking)
        app, sent = await spliced(path)
        path.relays[0].abort(Reason.SHUTDOWN)
        for sock in (app, path.client):
            with pytest.raises(ConnectionResetError):
                await received(sock)
            sock.close()
        assert await path.over() == [RelayEnd(Reason.SHUTDOWN, sent, 0)]

    run(story)


def test_without_descriptors_for_it_the_relay_goes_on_as_before() -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking)
        path.client.send(b"x")
        app = await path.app()
        await until(lambda: path.relays[0].accepted.received_bytes == 1)
        before = descriptors()
        ticking.reactor.descriptors = Descriptors(limit=before)
        loop = asyncio.get_running_loop()
        await loop.sock_recv(app, 100)
        for _ in range(8):
            await loop.sock_sendall(path.client, BULK[:100_000])
            came = 0
            while came < 100_000:
                came += len(await loop.sock_recv(app, 1 << 20))
            assert descriptors() == before
        path.client.close()
        assert await received(app) == b""
        app.close()
        assert await path.over() == [RelayEnd(Reason.COMPLETE, 1 + 800_000, 0)]

    run(story)


def test_the_meters_count_what_the_kernel_moves() -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking)
        read, written = Meter(), Meter()
        relay: Any = path.relays[0]
        relay.accepted.wire.meter = read
        relay.dialled.wire.meter = written
        app, sent = await spliced(path)
        more = BULK[:50_000]
        await asyncio.get_running_loop().sock_sendall(path.client, more)
        path.client.close()
        assert await received(app) == more
        app.close()
        await path.over()
        assert read.read_bytes == written.written_bytes == sent + len(more)

    run(story)


def test_a_slow_reader_is_waited_for_and_then_served_on() -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking)
        app, sent = await spliced(path)
        loop = asyncio.get_running_loop()
        pushing = asyncio.create_task(loop.sock_sendall(path.client, BULK * 8))
        await asyncio.sleep(0.05)
        assert not pushing.done(), "the app's side is full, and so is ours"
        ticking.pass_time(10.0)
        assert await received_exactly(app, 8 * len(BULK)) == BULK * 8
        await pushing
        path.client.close()
        assert await received(app) == b""
        app.close()
        assert await path.over() == [RelayEnd(Reason.COMPLETE, sent + 8 * len(BULK), 0)]

    run(story)


async def received_exactly(sock: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    whole = bytearray()
    while len(whole) < size:
        whole += await loop.sock_recv(sock, 1 << 20)
    return bytes(whole)


def test_a_direction_that_rests_gives_its_descriptors_back_and_goes_on() -> None:
    async def story(ticking: Ticking) -> None:
        path = Path(ticking)
        app, _ = await spliced(path)
        during = descriptors()
        ticking.pass_time(2.1)
        assert descriptors() == during
        ticking.pass_time(2.1)
        assert descriptors() == during - 4
        loop = asyncio.get_running_loop()
        path.client.send(b"after a rest")
        assert await loop.sock_recv(app, 100) == b"after a rest"
        path.client.close()
        assert await received(app) == b""
        app.close()
        await path.over()

    run(story)
