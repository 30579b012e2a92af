"""CONNECT to the explicit port, wherever it comes on its connection, over HTTP/1 and as a stream of HTTP/2 (row B20)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.watch import Absent, Watch
from proxy.policy.client import OPAQUE
from proxy.policy.endpoint import EndpointMeta
from tests.kit.http2 import Answered, Http2Client, http2_app
from tests.kit.network import Network, balance_policy, exchange, http_server
from tests.kit.sockets import REFUSING, Ticking, run, until

DB = "db.ns.svc.cluster.local:5432"
WEB = "web.ns.svc.cluster.local:80"
NOBODY = "nobody.ns.svc.cluster.local:1"
CONNECT = f"CONNECT {DB} HTTP/1.1\r\nHost: {DB}\r\n\r\n".encode()
REFUSED = f"CONNECT {NOBODY} HTTP/1.1\r\nHost: {NOBODY}\r\n\r\n".encode()
GET = b"GET http://web.ns.svc.cluster.local/ HTTP/1.1\r\nHost: x\r\n\r\n"
CONNECT_ERROR = 10


class Echo:
    """A server with a protocol of its own: it sends what it receives in capitals, and `bye` at the end."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        """What was received, by connection."""
        self.ended: list[bool] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        index = len(self.heard)
        self.heard.append(b"")
        self.ended.append(False)
        try:
            while data := await reader.read(65536):
                self.heard[index] += data
                writer.write(data.upper())
                await writer.drain()
            writer.write(b"bye")
        except ConnectionError:
            pass
        self.ended[index] = True
        writer.close()


class Scene:
    """An explicit port, an opaque service, an HTTP service, and a name that the mesh does not have."""

    def __init__(self, ticking: Ticking) -> None:
        self.network = Network(ticking)
        self.echo = Echo()
        self.seen: list[bytes] = []
        self.proxy: Addr

    async def start(self, web: Callable[..., Any] | None = None) -> Scene:
        network = self.network
        network.name(DB, await network.server(self.echo))
        network.fake.policies[DB] = Watch(balance_policy(DB, OPAQUE))
        network.name(WEB, await network.server(web or http_server("one", self.seen)))
        network.fake.policies[NOBODY] = Watch(Absent("no such service"))
        self.proxy = network.start()
        return self

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.proxy)

    def close(self) -> None:
        self.network.close()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """One response with a content-length and its body."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    length = next((int(one[15:]) for one in head.split(b"\r\n") if one.lower().startswith(b"content-length:")), 0)
    return head + await asyncio.wait_for(reader.readexactly(length), 10)


async def echoes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Check that the rest of a tunnel works: data and end in both directions, one after the other."""
    writer.write(b"more")
    assert await asyncio.wait_for(reader.readexactly(4), 10) == b"MORE"
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 10) == b"bye"
    writer.close()


# ---- HTTP/1


@pytest.mark.parametrize("early", [b"", b"early"])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_row_b20_connect_after_requests(before: int, early: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start()
        reader, writer = await scene.connect()
        for _ in range(before):
            writer.write(GET)
            assert (await answer(reader)).endswith(b"one")
        writer.write(CONNECT + early)
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(len(early)) == early.upper()
        await echoes(reader, writer)
        scene.close()

    run(story)


def test_row_b20_a_pipelined_connect_waits_for_its_turn() -> None:
    """Row B20: a pipelined CONNECT waits behind a request whose answer is still being made, and bytes of the tunnel
    wait behind it.
    """

    async def story(ticking: Ticking) -> None:
        go_on = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nslo")
            await go_on.wait()
            writer.write(b"wly")
            writer.close()

        scene = await Scene(ticking).start(slow)
        reader, writer = await scene.connect()
        writer.write(GET + CONNECT + b"early")
        head = await reader.readuntil(b"slo")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert ("policy", DB) not in scene.network.fake.asked and not scene.echo.heard
        go_on.set()
        assert await reader.readexactly(3) == b"wly"
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(5) == b"EARLY"
        await echoes(reader, writer)
        scene.close()

    run(story)


def test_row_b20_after_a_refusal_comes_another_request() -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start()
        reader, writer = await scene.connect()
        for _ in range(2):
            writer.write(REFUSED)
            refusal = await answer(reader)
            assert refusal.startswith(b"HTTP/1.1 502 ") and b"is not served by the mesh: no such service" in refusal
            writer.write(GET)
            assert (await answer(reader)).endswith(b"one")
        writer.write(CONNECT)
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
        await echoes(reader, writer)
        faults = 'sponson_connection_faults_total{direction="outbound",reason="connect_refused"} 2'
        assert faults in scene.network.metrics()
        scene.close()

    run(story)


def test_bytes_behind_a_refused_connect_are_no_request() -> None:
    """Bytes behind a refused CONNECT were meant for a tunnel and must not be read as a request: the one who chose them
    may not be the client itself (row B10).
    """

    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start()
        got = await exchange(scene.proxy, REFUSED + GET)
        assert got.startswith(b"HTTP/1.1 502 ") and got.count(b"HTTP/1.1 ") == 1 and b"onnection: close" in got
        assert not scene.seen
        scene.close()

    run(story)


@pytest.mark.parametrize(
    "head", [f"CONNECT {DB} HTTP/1.0\r\n\r\n", f"CONNECT {DB} HTTP/1.1\r\n\r\n", f"CONNECT {DB} HTTP/1.1\nHost: x\n\n"]
)
def test_odd_connects_that_have_one_reading(head: str) -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start()
        reader, writer = await scene.connect()
        writer.write(head.encode() + b"early")
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(5) == b"EARLY"
        await echoes(reader, writer)
        scene.close()

    run(story)


def test_a_client_that_leaves_while_its_tunnel_is_looked_up() -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start()
        known = scene.network.fake.policies[DB] = Watch(None)
        reader, writer = await scene.connect()
        writer.write(GET)
        await answer(reader)
        writer.write(CONNECT)
        await until(lambda: ("policy", DB) in scene.network.fake.asked)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()
        await until(lambda: not len(scene.network.drain))
        known.set(balance_policy(DB, OPAQUE))
        scene.close()
        assert not scene.echo.heard

    run(story)


# ---- HTTP/2

web = http2_app(lambda fields: ([(":status", "200")], b"one"))


class Tunnels:
    """A client of the explicit port that speaks HTTP/2, by the h2 library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.http2 = Http2Client()
        self._reader = reader
        self._writer = writer

    def connect(self, authority: str, data: bytes = b"", is_whole: bool = False) -> int:
        stream = self.http2.ask([(":method", "CONNECT"), (":authority", authority)], data, is_whole)
        self._send()
        return stream

    def get(self) -> int:
        stream = self.http2.get("/", authority="web.ns.svc.cluster.local")
        self._send()
        return stream

    def say(self, stream: int, data: bytes, end: bool = False) -> None:
        self.http2.h2.send_data(stream, data, end_stream=end)
        self._send()

    def reset(self, stream: int) -> None:
        self.http2.h2.reset_stream(stream, 8)
        self._send()

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            data = await asyncio.wait_for(self._reader.read(65536), 10)
            assert data, "the connection ended"
            self.http2.feed(data)
            self._send()

    async def answered(self, stream: int, body: bytes) -> Answered:
        one = self.http2.answers[stream]
        await self.until(lambda: one.body == body or one.is_over)
        assert one.body == body
        return one

    async def over(self, stream: int) -> Answered:
        one = self.http2.answers[stream]
        await self.until(lambda: one.is_over)
        return one

    def close(self) -> None:
        self._writer.close()

    def _send(self) -> None:
        self._writer.write(self.http2.take())


@pytest.mark.parametrize("before", [0, 2])
def test_row_b20_connect_as_a_stream_of_http_2(before: int) -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start(web)
        client = Tunnels(*await scene.connect())
        for _ in range(before):
            assert (await client.over(client.get())).body == b"one"
        first, second = client.connect(DB, b"early"), client.connect(DB)
        assert (await client.answered(first, b"EARLY")).status == "200"
        client.say(second, b"other")
        await client.answered(second, b"OTHER")
        assert (await client.over(client.get())).body == b"one", "requests go on beside tunnels"
        client.say(first, b"", end=True)
        one = await client.over(first)
        assert one.body == b"EARLYbye" and one.reset is None
        assert scene.echo.heard == [b"early", b"other"]
        client.reset(second)
        await until(lambda: scene.echo.ended == [True, True])
        assert not client.http2.goaways
        client.close()
        scene.close()

    run(story)


def test_a_connect_that_is_refused_ends_its_stream_alone() -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start(web)
        client = Tunnels(*await scene.connect())
        for authority, status in ((NOBODY, "502"), ("a..b:80", "400"), (DB, "200")):
            stream = client.connect(authority)
            one = client.http2.answers[stream]
            await client.until(lambda one=one: bool(one.status))  # type: ignore[misc]
            assert one.status == status
        assert (await client.over(client.get())).body == b"one" and not client.http2.goaways
        client.close()
        scene.close()

    run(story)


def test_a_tunnel_whose_client_ended_with_its_connect() -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start()
        client = Tunnels(*await scene.connect())
        one = await client.over(client.connect(DB, is_whole=True))
        assert (one.status, one.body, one.reset) == ("200", b"bye", None)
        client.close()
        scene.close()

    run(story)


def test_a_server_that_ends_first_is_still_spoken_to() -> None:
    async def story(ticking: Ticking) -> None:
        heard = b""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal heard
            writer.write(b"welcome")
            writer.write_eof()
            heard = await reader.read()
            writer.close()

        scene = await Scene(ticking).start()
        scene.network.fake.names[DB].set(reset({await scene.network.server(serve): EndpointMeta()}))
        client = Tunnels(*await scene.connect())
        stream = client.connect(DB)
        one = await client.over(stream)
        assert one.body == b"welcome" and one.reset is None
        client.say(stream, b"thanks", end=True)
        await until(lambda: heard == b"thanks")
        client.close()
        scene.close()

    run(story)


def test_http_inside_of_a_stream_is_detected_and_balanced() -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start()
        client = Tunnels(*await scene.connect())
        stream = client.connect(WEB)
        for count in (1, 2):
            client.say(stream, b"GET / HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\n\r\n")
            one = client.http2.answers[stream]
            await client.until(lambda one=one, count=count: one.body.count(b"one", 10) >= 2 * count)  # type: ignore[misc]
        client.say(stream, b"GET / HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\nConnection: close\r\n\r\n")
        one = await client.over(stream)
        assert one.reset is None and len(scene.seen) == 3
        assert 'request_total{direction="outbound",authority="web.ns.svc.cluster.local"' in scene.network.metrics()
        client.close()
        scene.close()

    run(story)


def test_a_destination_that_refuses_is_a_connect_error() -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start(web)
        scene.network.fake.names[DB].set(reset({REFUSING: EndpointMeta()}))
        client = Tunnels(*await scene.connect())
        one = client.http2.answers[client.connect(DB)]
        while not one.is_over:
            waiting = asyncio.create_task(client.until(lambda: one.is_over))
            while not waiting.done():
                ticking.pass_time(0.5)  # the service fails fast
                await asyncio.sleep(0.01)
            await waiting
        assert one.status == "200" and one.reset == CONNECT_ERROR
        assert (await client.over(client.get())).body == b"one"
        client.close()
        scene.close()

    run(story)


def test_a_tunnel_carries_more_than_its_window_both_ways() -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start()
        client = Tunnels(*await scene.connect())
        stream = client.connect(DB)
        left = big = b"0123456789abcdef" * 65536
        one = client.http2.answers[stream]
        while left:
            room = min(client.http2.h2.local_flow_control_window(stream), 16384, len(left))
            if room:
                client.say(stream, left[:room])
                left = left[room:]
            else:
                had = client.http2.h2.local_flow_control_window(stream)
                await client.until(lambda had=had: client.http2.h2.local_flow_control_window(stream) > had)  # type: ignore[misc]
        client.say(stream, b"", end=True)
        await client.over(stream)
        assert one.body == big.upper() + b"bye"
        client.close()
        scene.close()

    run(story)


def test_a_server_that_does_not_read_holds_its_client_back() -> None:
    async def story(ticking: Ticking) -> None:
        go_on = asyncio.Event()
        size = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal size
            await go_on.wait()
            while data := await reader.read(1 << 20):
                size += len(data)
            writer.close()

        scene = await Scene(ticking).start()
        scene.network.fake.names[DB].set(reset({await scene.network.server(serve): EndpointMeta()}))
        client = Tunnels(*await scene.connect())
        stream = client.connect(DB)
        await client.until(lambda: bool(client.http2.answers[stream].status))
        sent = 0
        h2 = client.http2.h2

        async def push() -> None:
            nonlocal sent
            while room := min(h2.local_flow_control_window(stream), 16384):
                client.say(stream, bytes(room))
                sent += room
                await asyncio.sleep(0)

        async def window_opens() -> bool:
            try:
                await asyncio.wait_for(client.until(lambda: h2.local_flow_control_window(stream) > 0), 0.5)
            except TimeoutError:
                return False
            return True

        await push()
        while await window_opens():
            await push()
            assert sent < 64 << 20, "nobody holds it back"
        go_on.set()
        client.http2.h2.end_stream(stream)
        client._send()
        await client.over(stream)
        assert size == sent
        client.close()
        scene.close()

    run(story)


@pytest.mark.parametrize("is_idle", [True, False])
def test_at_shutdown_what_runs_inside_finishes_and_what_is_idle_ends(is_idle: bool) -> None:
    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start()
        client = Tunnels(*await scene.connect())
        stream = client.connect(WEB if is_idle else DB)
        one = client.http2.answers[stream]
        if is_idle:
            client.say(stream, b"GET / HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\n\r\n")
            await client.until(lambda: one.body.endswith(b"one") and len(one.body) > 20)
        else:
            client.say(stream, b"ping")
            await client.answered(stream, b"PING")
        scene.network.drain.begin(lambda: None)
        if not is_idle:
            await client.until(lambda: bool(client.http2.goaways))
            client.say(stream, b"pong", end=True)
        await client.over(stream)
        assert one.reset is None and (is_idle or one.body == b"PINGPONGbye")
        client.close()
        await until(lambda: not len(scene.network.drain))
        scene.close()

    run(story)


def test_a_client_that_never_ends_its_half_is_not_kept_for_ever() -> None:
    """When the answer inside a tunnel has closed its connection, which is the stream, the client must end its half too
    within LINGER_S.
    """

    async def story(ticking: Ticking) -> None:
        scene = await Scene(ticking).start()
        client = Tunnels(*await scene.connect())
        stream = client.connect(WEB)
        client.say(stream, b"GET / HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\nConnection: close\r\n\r\n")
        one = await client.over(stream)
        assert one.body.endswith(b"one") and one.reset is None
        client.say(stream, b"who is there?")
        for _ in range(3):  # of the codec inside, of the stream
            ticking.pass_time(limits.LINGER_S + 1)
            await asyncio.sleep(0.01)
        one.is_over = False
        await client.over(stream)
        assert one.reset == 0
        client.close()
        await until(lambda: not len(scene.network.drain))
        scene.close()

    run(story)
