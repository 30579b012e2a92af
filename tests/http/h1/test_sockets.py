"""HTTP/1 through real sockets, where kernels reset, buffer and half-close: early answers, slow readers, half-closed clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.core.address.addr import addr
from proxy.core.connection.dial import DialOptions
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.h1.server import H1Server
from proxy.http.pool import Pool
from proxy.transport.plain import dial_plain, serve_plain
from tests.kit.pair import ToPool
from tests.kit.sockets import Ticking, run, tcp_pair, until

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Hop:
    """An app on a socket, the proxy's two codecs before it, and a client's end."""

    def __init__(self, ticking: Ticking) -> None:
        self._ticking = ticking
        self.exchanges: list[Exchange] = []

    async def begin(self, app: Serve) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await app(reader, writer)
            finally:
                writer.close()

        self._server = await asyncio.start_server(handle, "127.0.0.1", 0)
        at = addr("127.0.0.1", self._server.sockets[0].getsockname()[1])
        reactor = self._ticking.reactor

        def dial(pool: Pool) -> H1Client:
            codec = dial_plain(reactor, at, lambda wire: H1Client(wire, pool), DialOptions())
            assert isinstance(codec, H1Client)
            return codec

        self.pool = H1Pool(dial, reactor.wheel)
        stage = ToPool(self.pool)
        self.exchanges = stage.exchanges
        near, far = tcp_pair()
        serve_plain(reactor, far, lambda wire: H1Server(wire, stage, reactor.clock, reactor.wheel))
        return await asyncio.open_connection(sock=near)

    async def end(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        self._ticking.pass_time(100.0)
        self._server.close()
        await until(lambda: not len(self.pool), "the pool is empty")


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("then", ["reads on", "stays", "closes"])
def test_an_early_answer_reaches_a_client_that_sends_everything_first(then: str) -> None:
    size = 20_000_000

    async def app(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        await reader.readexactly(65536)
        writer.write(b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 7\r\n\r\ntoo big")
        while then == "reads on" and await reader.read(65536):
            pass
        if then == "stays":
            await asyncio.sleep(0.5)

    async def story(ticking: Ticking) -> None:
        hop = Hop(ticking)
        reader, writer = await hop.begin(app)
        writer.write(b"POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 100_000):
            writer.write(b"z" * 100_000)
            await writer.drain()
        assert (await head_of(reader)).startswith(b"HTTP/1.1 413 ")
        assert await reader.readexactly(7) == b"too big"
        assert await reader.read() == b""
        await hop.end(writer)

    run(story)


def test_a_body_that_ends_by_closing_reaches_a_slow_reader_whole() -> None:
    size = 3_000_000

    async def app(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + b"z" * size)
        await writer.drain()

    async def story(ticking: Ticking) -> None:
        hop = Hop(ticking)
        reader, writer = await hop.begin(app)
        writer.write(b"GET / HTTP/1.1\r\nHost: svc\r\n\r\n")
        assert (await head_of(reader)).startswith(b"HTTP/1.0 200 ")
        got = 0
        while data := await reader.read(50_000):
            got += len(data)
            await asyncio.sleep(0.001)
        assert got == size
        await hop.end(writer)

    run(story)


def test_a_half_closed_client_gets_its_answer_and_the_connection_ends() -> None:
    async def app(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"z" * 1_000_000)
        await writer.drain()
        await reader.read()

    async def story(ticking: Ticking) -> None:
        hop = Hop(ticking)
        reader, writer = await hop.begin(app)
        writer.write(b"GET / HTTP/1.1\r\nHost: svc\r\n\r\n")
        writer.write_eof()
        assert (await head_of(reader)).startswith(b"HTTP/1.1 200 ")
        assert len(await reader.read()) == 1_000_000
        await hop.end(writer)

    run(story)


def test_a_tunnel_half_closes_each_way_through_sockets() -> None:
    async def app(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: upgrade\r\n\r\nhello")
        heard = await reader.read()
        writer.write(b"heard " + heard)
        await writer.drain()

    async def story(ticking: Ticking) -> None:
        hop = Hop(ticking)
        reader, writer = await hop.begin(app)
        writer.write(b"GET / HTTP/1.1\r\nHost: svc\r\nUpgrade: chat\r\nConnection: upgrade\r\n\r\nearly ")
        assert (await head_of(reader)).startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(5) == b"hello"
        writer.write(b"late")
        writer.write_eof()
        assert await reader.read() == b"heard early late"
        await until(lambda: hop.exchanges[0].reason is not None, "the tunnel has ended")
        await hop.end(writer)

    run(story)


def test_a_client_that_does_not_hang_up_is_closed_in_time() -> None:
    async def app(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.read()

    async def story(ticking: Ticking) -> None:
        hop = Hop(ticking)
        reader, writer = await hop.begin(app)
        writer.write(b"GET / HTTP/1.1\r\nHost: svc\r\nConnection: close\r\n\r\n")
        assert b"Connection: close\r\n" in await head_of(reader)
        assert await reader.read() == b"ok"
        ticking.pass_time(40.0)
        with pytest.raises(ConnectionError):
            for _ in range(500):
                writer.write(b"still here")
                await writer.drain()
                await asyncio.sleep(0.002)
        await hop.end(writer)

    run(story)
