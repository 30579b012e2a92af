"""The demo's HTTP/2 client and server, each tested alone."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from hyperframe.frame import GoAwayFrame, PingFrame

from proxy.cli.demo.app import SERVED_BY, Replica
from proxy.cli.demo.h2 import Http2Requests, connect_http2
from proxy.cli.demo.mesh import AUTHORITY
from proxy.core.address.addr import Addr
from tests.kit.http2 import Http2Server

AT_ONCE = 20

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA_ON_STREAM_0 = bytes([0, 0, 1, 0, 0, 0, 0, 0, 0, 0])
GOAWAY = 7
GOAWAY_BYTES = 17


@asynccontextmanager
async def replica(delay_s: float = 0.0) -> AsyncIterator[Replica]:
    one = Replica("web-0", delay_s)
    await one.start()
    yield one
    one.stop()


class Peer:
    """A server by the h2 library that does to each request what it is told."""

    def __init__(self, act: Callable[[H2Connection, int], None], streams: int = 100) -> None:
        self.connections = 0
        self._act = act
        self._streams = streams

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        act = self._act
        await Http2Server(lambda server, asked: act(server.h2, asked.stream_id), streams=self._streams).serve(
            reader, writer
        )


@asynccontextmanager
async def listening(serve: Callable[[StreamReader, StreamWriter], Awaitable[None]]) -> AsyncIterator[Addr]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield Addr("127.0.0.1", server.sockets[0].getsockname()[1])
    server.close()


def test_an_app_answers_many_requests_at_once_on_one_connection() -> None:
    async def run() -> None:
        async with replica(0.01) as app:
            client = await connect_http2(app.addr)
            answers = await asyncio.gather(*(client.get("/", AUTHORITY) for _ in range(AT_ONCE)))
            client.close()
            assert {(one.status, one.body, one.fields[SERVED_BY]) for one in answers} == {
                (200, b"hello from web-0\n", str(app.addr))
            }
            assert app.versions == {"HTTP/2": AT_ONCE}

    asyncio.run(run())


def test_an_app_survives_a_peer_that_speaks_nonsense() -> None:
    async def run() -> None:
        async with replica() as app:
            reader, writer = await asyncio.open_connection(app.addr.ip, app.addr.port)
            writer.write(PREFACE + DATA_ON_STREAM_0)
            goaway = (await asyncio.wait_for(reader.read(), 10))[-GOAWAY_BYTES:]
            assert goaway[3] == GOAWAY
            writer.close()
            client = await connect_http2(app.addr)
            assert (await client.get("/", AUTHORITY)).status == 200
            client.close()

    asyncio.run(run())


def test_another_connection_is_opened_only_where_the_peer_allows_no_more_streams() -> None:
    came: list[int] = []

    def hold_the_second(connection: H2Connection, stream: int) -> None:
        came.append(stream)
        if len(came) != 2:
            connection.send_headers(stream, [(":status", "200")], end_stream=True)

    async def run() -> None:
        peer = Peer(hold_the_second, streams=1)
        async with listening(peer.serve) as addr:
            requests = Http2Requests(addr)
            async with asyncio.timeout(10):
                assert (await requests.get(AUTHORITY)).status == 200
                held = asyncio.create_task(requests.get(AUTHORITY))
                while len(came) < 2:
                    await asyncio.sleep(0.001)
                for _ in range(3):
                    assert (await requests.get(AUTHORITY)).status == 200
            assert peer.connections == 2
            held.cancel()
            requests.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("act", "failure"),
    [
        (lambda connection, stream: connection.reset_stream(stream, 11), "stream reset with code 11"),
        (lambda connection, stream: connection.close_connection(0), "closed without a response"),
    ],
)
def test_a_request_that_its_peer_ends_fails_with_the_reason(
    act: Callable[[H2Connection, int], None], failure: str
) -> None:
    async def run() -> None:
        async with listening(Peer(act).serve) as addr:
            requests = Http2Requests(addr)
            with pytest.raises(ConnectionError, match=failure):
                await asyncio.wait_for(requests.get(AUTHORITY), 10)
            requests.close()

    asyncio.run(run())


def test_a_response_that_comes_after_a_goaway_and_a_ping_is_taken() -> None:
    """A sidecar says GOAWAY, answers what runs, and may ask meanwhile whether we are there."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        while not any(
            isinstance(event, RequestReceived) for event in connection.receive_data(await reader.read(65536))
        ):
            writer.write(connection.data_to_send())
        connection.send_headers(1, [(":status", "200")], end_stream=True)
        answer = connection.data_to_send()
        goaway, ping = GoAwayFrame(0, last_stream_id=1), PingFrame(0, b"are you?")
        writer.write(goaway.serialize() + ping.serialize())
        acknowledged = b""
        while b"are you?" not in acknowledged:
            acknowledged += await reader.read(65536)
        writer.write(answer)
        writer.close()

    async def run() -> None:
        async with listening(serve) as addr:
            requests = Http2Requests(addr)
            assert (await asyncio.wait_for(requests.get(AUTHORITY), 10)).status == 200
            requests.close()

    asyncio.run(run())


def test_a_peer_without_http2_is_an_error() -> None:
    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        writer.close()

    async def run() -> None:
        async with listening(serve) as addr:
            requests = Http2Requests(addr)
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(requests.get(AUTHORITY), 10)
            requests.close()

    asyncio.run(run())
