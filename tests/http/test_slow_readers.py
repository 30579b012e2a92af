"""A body against a slow reader through real sockets: at either end, for each pair of versions, and for the meshed pair
over mTLS.

The reader rests before it reads and once more within the body, for longer than a fast sender needs for all of it;
meanwhile no proxy may hold more than a window and a watermark. When it reads on, every octet must arrive in time,
and the next request on the same connections must be served at once, which a pause that outlives its direction would
prevent.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import tracemalloc
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest

from proxy.core.address.addr import Addr, addr
from proxy.core.codec import Codec, Wire
from proxy.core.connection.dial import DialOptions
from proxy.core.failure.reason import Reason
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.h1.server import H1Server
from proxy.http.h2.client import H2Client
from proxy.http.h2.server import H2Server
from proxy.http.pool import Pool
from proxy.tls.handshake import dial_tls, serve_tls
from proxy.tls.peer import TlsServing, TlsTarget
from proxy.transport.listener import Listener
from proxy.transport.plain import dial_plain, serve_plain
from tests.kit.certificates import credentials
from tests.kit.http1 import DEADLINE_S
from tests.kit.pair import ToPool
from tests.kit.sockets import Ticking, run

SIZE = 12_000_000
BLOCK = hashlib.shake_256(b"body").digest(65_521)
HELD_BYTES = 1 << 20
"""The most that one proxy may hold."""
PEERS_BYTES = 1 << 20
"""The same for the two peers, which live in this process too: their windows and their streams' buffers."""
REST_S = 0.25
SERVER = "app.ns.serviceaccount.identity.linkerd.cluster.local"


def digest_of(size: int) -> bytes:
    whole, rest = divmod(size, len(BLOCK))
    digest = hashlib.sha256()
    for _ in range(whole):
        digest.update(BLOCK)
    digest.update(BLOCK[:rest])
    return digest.digest()


DIGEST = digest_of(SIZE)


class Reader:
    """Reads a body at its own pace and keeps its digest."""

    def __init__(self, is_slow: bool) -> None:
        self.size = 0
        self.digest = hashlib.sha256()
        self._is_slow = is_slow
        self._rests = [0, 2_000_000] if is_slow else []

    async def take(self, data: bytes) -> None:
        self.size += len(data)
        self.digest.update(data)
        if self._rests and self.size > self._rests[0]:
            del self._rests[0]
            await asyncio.sleep(REST_S)
        elif self._is_slow and self.size < 4_000_000:
            await asyncio.sleep(0.001)

    def check(self) -> None:
        assert self.size == SIZE and self.digest.digest() == DIGEST


class H1Talk:
    """One connection of a peer that speaks HTTP/1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_client: bool) -> None:
        self._reader = reader
        self._writer = writer
        self._is_client = is_client

    async def head(self) -> tuple[str, int]:
        """Path or status, and the length of the body."""
        data = await self._reader.readuntil(b"\r\n\r\n")
        size = 0
        for line in data.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                size = int(line[15:])
        return data.split(b" ")[1].decode(), size

    async def begin(self, path: str, size: int) -> None:
        start = f"POST {path} HTTP/1.1\r\nHost: svc" if self._is_client else "HTTP/1.1 200 OK"
        self._writer.write(f"{start}\r\nContent-Length: {size}\r\n\r\n".encode())

    async def write(self, size: int) -> None:
        while size:
            self._writer.write(BLOCK[:size])
            size -= min(size, len(BLOCK))
            await self._writer.drain()

    async def read(self, size: int, into: Reader) -> None:
        while size:
            data = await self._reader.read(min(size, 65536))
            assert data, "the body breaks off"
            size -= len(data)
            await into.take(data)


class H2Talk:
    """One connection of a peer that speaks HTTP/2, one stream after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_client: bool) -> None:
        self._reader = reader
        self._writer = writer
        self._is_client = is_client
        self._lib: Any = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=is_client, header_encoding=None)
        )
        self._lib.initiate_connection()
        self._number = 0
        self._heads: list[tuple[str, int]] = []
        self._data: list[tuple[bytes, int]] = []

    async def head(self) -> tuple[str, int]:
        while not self._heads:
            await self._listen()
        return self._heads.pop()

    async def begin(self, path: str, size: int) -> None:
        if self._is_client:
            self._number = self._lib.get_next_available_stream_id()
            head = [(":method", "POST"), (":scheme", "http"), (":authority", "svc"), (":path", path)]
        else:
            head = [(":status", "200")]
        self._lib.send_headers(self._number, [*head, ("content-length", str(size))], end_stream=not size)
        await self._flush()

    async def write(self, size: int) -> None:
        left = size
        while left:
            room = min(left, 16384, self._lib.local_flow_control_window(self._number))
            if not room:
                await self._listen()
                continue
            at = (size - left) % len(BLOCK)
            room = min(room, len(BLOCK) - at)
            left -= room
            self._lib.send_data(self._number, BLOCK[at : at + room], end_stream=not left)
            await self._flush()

    async def read(self, size: int, into: Reader) -> None:
        while into.size < size:
            while not self._data:
                await self._listen()
            data, credit = self._data.pop(0)
            await into.take(data)
            self._lib.acknowledge_received_data(credit, self._number)
            await self._flush()

    async def _flush(self) -> None:
        self._writer.write(self._lib.data_to_send())
        await self._writer.drain()

    async def _listen(self) -> None:
        await self._flush()
        data = await self._reader.read(65536)
        assert data, "the connection breaks off"
        for event in self._lib.receive_data(data):
            assert not isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated), event
            if isinstance(event, h2.events.RequestReceived | h2.events.ResponseReceived):
                fields = dict(event.headers)
                self._number = event.stream_id
                start = fields.get(b":path") or fields[b":status"]
                self._heads.append((start.decode(), int(fields.get(b"content-length", 0))))
            elif isinstance(event, h2.events.DataReceived) and event.data:
                self._data.append((event.data, event.flow_controlled_length))
        await self._flush()


TALKS: dict[str, Any] = {"h1": H1Talk, "h2": H2Talk}


class Hop:
    """A proxy: it accepts one version of HTTP, plain or over TLS, and dials the next address in another."""

    def __init__(self, ticking: Ticking, accepts: str, dials: str, to: Addr) -> None:
        self._reactor = ticking.reactor
        self._accepts, self._dials, self._to = accepts, dials, to
        pool = H1Pool(self._dial, ticking.wheel) if dials == "h1" else Pool(self._dial)
        self.stage = ToPool(pool)
        self.pool = pool
        self._listener = Listener(self._reactor, addr("127.0.0.1", 0), self._accept)
        self.addr = self._listener.addr
        self.dialled = 0

    def _accept(self, sock: socket.socket, peer: Addr) -> None:
        if self._accepts == "h2+tls":
            context = credentials(SERVER).server_context(False)
            serve_tls(self._reactor, sock, TlsServing(context), lambda session, _: self._server(session), self._failed)
        else:
            serve_plain(self._reactor, sock, self._server)

    def _failed(self, reason: Any, text: str) -> None:
        raise AssertionError(text)

    def _server(self, wire: Wire) -> Codec:
        server = H1Server if self._accepts == "h1" else H2Server
        return server(wire, self.stage, self._reactor.clock, wheel=self._reactor.wheel)

    def _dial(self, pool: Pool) -> Any:
        self.dialled += 1
        if self._dials == "h1":
            return dial_plain(self._reactor, self._to, lambda wire: H1Client(wire, pool), DialOptions())
        make = lambda wire: H2Client(wire, pool, wheel=self._reactor.wheel)  # noqa: E731
        if self._dials == "h2":
            return dial_plain(self._reactor, self._to, make, DialOptions())
        target = TlsTarget(credentials("client.ns").client_context(False), SERVER, SERVER)
        return dial_tls(self._reactor, self._to, target, make, DialOptions())

    def close(self) -> None:
        self._listener.close()
        self.pool.close(Reason.SHUTDOWN)


CHAINS = {
    "h1-h1": [("h1", "h1")],
    "h1-h2": [("h1", "h2")],
    "h2-h1": [("h2", "h1")],
    "h2-h2": [("h2", "h2")],
    "meshed pair": [("h1", "h2+tls"), ("h2+tls", "h1")],
    "meshed pair of h2": [("h2", "h2+tls"), ("h2+tls", "h2")],
}


async def application(talk: Any, is_slow: bool, uploads: list[Reader]) -> None:
    """Reads what is sent; answers `/big` with a big body and everything else with a short one."""
    while True:
        path, size = await talk.head()
        taken = Reader(is_slow and size == SIZE)
        await talk.read(size, taken)
        if size == SIZE:
            uploads.append(taken)
        answer = SIZE if path == "/big" else 10
        await talk.begin(path, answer)
        await talk.write(answer)


async def ask(talk: Any, path: str, size: int, is_slow: bool) -> Reader:
    await talk.begin(path, size)
    await talk.write(size)
    status, length = await talk.head()
    assert status == "200"
    taken = Reader(is_slow)
    await talk.read(length, taken)
    return taken


@pytest.mark.parametrize("slow", ["client", "app"])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_slow_reader(chain: str, slow: str) -> None:
    ways = CHAINS[chain]
    uploads: list[Reader] = []

    async def story(ticking: Ticking) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talk = TALKS[ways[-1][1]](reader, writer, False)
            try:
                await application(talk, slow == "app", uploads)
            except (asyncio.IncompleteReadError, AssertionError):
                writer.close()

        app = await asyncio.start_server(serve, "127.0.0.1", 0)
        to = addr("127.0.0.1", app.sockets[0].getsockname()[1])
        hops: list[Hop] = []
        for accepts, dials in reversed(ways):
            hops.append(Hop(ticking, accepts, dials, to))
            to = hops[-1].addr
        reader, writer = await asyncio.open_connection(to.ip, to.port)
        talk = TALKS[ways[0][0]](reader, writer, True)
        await asyncio.wait_for(ask(talk, "/", 10, False), 10)

        tracemalloc.start()
        tracemalloc.reset_peak()
        if slow == "client":
            taken = await asyncio.wait_for(ask(talk, "/big", 10, True), 60)
        else:
            await asyncio.wait_for(ask(talk, "/", SIZE, False), 60)
            taken = uploads[0]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        taken.check()
        assert peak < HELD_BYTES * len(hops) + PEERS_BYTES, f"{peak} octets were held"

        after = await asyncio.wait_for(ask(talk, "/", 10, False), DEADLINE_S)
        assert after.size == 10 and [hop.dialled for hop in hops] == [1] * len(hops)
        writer.close()
        app.close()
        for hop in hops:
            hop.close()
        ticking.pass_time(100.0)

    try:
        run(story)
    finally:
        tracemalloc.stop()
