"""Endpoints that refuse, break off or fail fast beside one that works: row B18 of the table in docs/testing.md."""

from __future__ import annotations

import asyncio
import logging
import struct
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import pytest

from proxy.balance.endpoints import FAILED, Resolution, reset
from proxy.core.address.addr import Addr
from proxy.core.failure.reason import Reason
from proxy.core.limits import ATTEMPTS
from proxy.core.watch import Watch
from proxy.outbound.backend.reach import Probe
from proxy.policy.client import OPAQUE
from proxy.policy.endpoint import EndpointMeta
from tests.kit import ListWire
from tests.kit.network import Network, balance_policy, http_server
from tests.kit.sockets import REFUSING, REFUSING_TOO, Ticking, run

WEB = "web.ns.svc.cluster.local:80"
DST = Addr("10.43.0.7", 80)
GET = b"GET /a HTTP/1.1\r\nHost: web\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: web\r\nContent-Length: 5\r\n\r\nhello"


async def ask(network: Network, request: bytes) -> int:
    """The status of the answer to a request on a connection of its own."""
    reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
    writer.write(request)
    line = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    return int(line.split()[1])


def begin(network: Network, *addrs: Addr) -> Watch[Any]:
    network.fake.policies[DST] = Watch(balance_policy(WEB))
    known = network.fake.names[WEB] = Watch(reset(dict.fromkeys(addrs, EndpointMeta())))
    network.start()
    return known


@pytest.mark.parametrize("request_", [GET, POST], ids=["get", "post"])
def test_no_request_is_lost_to_an_endpoint_that_refuses(request_: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        good = await network.server(http_server("good"))
        begin(network, good, REFUSING)
        assert [await ask(network, request_) for _ in range(50)] == [200] * 50
        network.close()

    run(story)


def test_a_request_goes_on_past_two_endpoints_that_refuse() -> None:
    async def story(ticking: Ticking) -> None:
        for _ in range(12):  # which of the three is tried first is drawn
            network = Network(ticking)
            good = await network.server(http_server("good"))
            begin(network, good, REFUSING, REFUSING_TOO)
            assert await ask(network, GET) == 200
            network.close()

    run(story)


def test_why_the_only_endpoint_cannot_be_connected_to_is_told() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        begin(network, REFUSING)
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(GET)
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 502 ")
        await asyncio.wait_for(reader.readuntil(b"\nbecause: "), 10)
        assert b"refused" in await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        network.close()

    run(story)


def test_an_endpoint_that_refused_is_tried_in_the_background_and_comes_back() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        asked = [0, 0]

        def counting(which: int) -> Any:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if await reader.readline():
                    asked[which] += 1
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                writer.close()

            return serve

        good = await network.server(counting(0))
        server = await asyncio.start_server(counting(1), "127.0.0.1", 0)
        other = Addr(*server.sockets[0].getsockname()[:2])
        server.close()
        await server.wait_closed()
        begin(network, good, other)
        for _ in range(10):
            assert await ask(network, GET) == 200
        assert asked == [10, 0]
        await network.server(counting(1), other.port)

        async def is_asked_again() -> bool:
            ticking.pass_time(30.0)  # what was observed of it is forgotten soon
            await ask(network, GET)
            return asked[1] > 0

        async with asyncio.timeout(20):
            while not await is_asked_again():
                await asyncio.sleep(0)
        network.close()

    run(story)


def dialled(caplog: pytest.LogCaptureFixture) -> int:
    """How many connects to endpoints failed."""
    return sum(record.getMessage().startswith("Failed to connect to ") for record in caplog.records)


def test_the_last_endpoint_says_at_once_that_it_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """It is dialled once for each request: to try it again would only make the client wait."""

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        begin(network, REFUSING)
        assert [await ask(network, GET) for _ in range(3)] == [502] * 3
        assert dialled(caplog) == 3
        network.close()

    with caplog.at_level(logging.INFO):
        run(story)


async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def fails_fast(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readline():
        if not (await reader.readuntil(b"\r\n\r\n")).startswith(b"x"):
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
    writer.close()


async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readline():
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.005)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    writer.close()


@pytest.mark.parametrize(("bad", "most"), [(closes, 3), (resets, 3), (fails_fast, 45)])
def test_an_endpoint_that_fails_faster_than_another_answers_does_not_draw_the_requests(bad: Any, most: int) -> None:
    """An endpoint that breaks off counts as slow; one that answers 5xx gets no more requests than a new endpoint
    would.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        begin(network, await network.server(slow), await network.server(bad))
        statuses = []
        for _ in range(60):
            statuses.append(await ask(network, GET))
            ticking.pass_time(0.05)
        assert len([one for one in statuses if one != 200]) <= most, statuses
        network.close()

    run(story)


DB = "db.ns.svc.cluster.local:5432"
OPAQUE_DST = Addr("10.43.0.9", 5432)


async def shouts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello ")
    while data := await reader.read(65536):
        writer.write(data.upper())
    writer.close()


async def talk(network: Network, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(sock=network.redirect(OPAQUE_DST))
    writer.write(data)
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except OSError:
        return b"<RST>"
    finally:
        writer.close()


def begin_opaque(network: Network, *addrs: Addr) -> None:
    network.fake.policies[OPAQUE_DST] = Watch(balance_policy(DB, OPAQUE))
    network.fake.names[DB] = Watch(reset(dict.fromkeys(addrs, EndpointMeta())))
    network.start()


def test_no_opaque_connection_is_lost_to_an_endpoint_that_refuses() -> None:
    """What a client of an opaque connection sent before there was a connection to an endpoint, and its end, reach the
    endpoint that accepts the connection, whole and once.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        begin_opaque(network, await network.server(shouts), REFUSING, REFUSING_TOO)
        data = bytes(range(97, 123)) * 20_000
        for size in (0, 5, len(data), *[5] * 20):
            assert await talk(network, data[:size]) == b"hello " + data[:size].upper()
            ticking.pass_time(0.5)
        assert "outbound_tcp_errors_total" not in network.metrics()
        network.close()

    run(story)


def test_only_so_many_endpoints_are_tried_for_one_connection() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        refusing = [Addr(f"127.0.0.{number}", REFUSING.port) for number in range(1, 11)]
        begin_opaque(network, *refusing)
        assert await talk(network, b"data") == b"<RST>"
        router: Any = network.outbound.discovery.get(OPAQUE_DST).routers["opaque"]
        (backend,) = router._backends.values()
        ready = backend._balancer.sizes()[1]
        assert ready == len(refusing) - ATTEMPTS
        assert 'error="i/o"} 1' in network.metrics(), "counted once"
        network.close()

    run(story)


def test_the_last_opaque_endpoint_ends_its_connections_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        begin_opaque(network, REFUSING)
        assert [await talk(network, b"data") for _ in range(3)] == [b"<RST>"] * 3
        assert dialled(caplog) == 3
        network.close()

    with caplog.at_level(logging.INFO):
        run(story)


def test_a_refused_question_for_opaque_endpoints_is_no_overload() -> None:
    """Connections fail at once, and are counted as what they are: nothing is short, there will be no endpoints."""

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        begin_opaque(network)
        network.fake.names[DB].set(Resolution(FAILED, {}, "no such service"))
        assert await talk(network, b"data") == b"<RST>"
        counted = [line for line in network.metrics().splitlines() if line.startswith("outbound_tcp_errors_total{")]
        assert len(counted) == 1 and counted[0].endswith('error="unexpected"} 1')
        network.close()

    run(story)


@pytest.mark.parametrize(
    ("reason", "has_failed"),
    [
        (Reason.CONNECT_FAILED, True),
        (Reason.CONNECT_TIMEOUT, True),
        (Reason.COMPLETE, False),
        (Reason.CONNECTION_RESET, False),
    ],
)
def test_a_probe_that_was_connected_has_not_failed_however_it_ends(reason: Reason, has_failed: bool) -> None:
    failed: list[None] = []
    Probe(ListWire(), lambda: failed.append(None)).lost(reason)
    assert bool(failed) is has_failed
