"""Silent clients whose servers are dialled: how much they can make the proxy hold, and which failures are kept from
them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.balance.endpoints import Resolution, reset
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.policy.client import FORBIDDEN, ClientPolicy, Distribution, StreamRoute
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import default_meta
from tests.kit.network import Network, balance_policy
from tests.kit.sockets import REFUSING, Ticking, run, until

DST = Addr("10.43.0.9", 2525)
MAIL = "mail.ns.svc.cluster.local:2525"
GET = b"GET / HTTP/1.1\r\nHost: mail\r\nConnection: close\r\n\r\n"


CLIENTS = limits.EARLY_DIALS + 40


def test_silent_clients_make_a_bounded_number_of_connections() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        taken: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken.append(writer)
            await reader.read()
            writer.close()

        network.fake.policies[DST] = Watch(balance_policy(MAIL))
        network.fake.names[MAIL] = Watch(reset({await network.server(serve): EndpointMeta()}))
        network.start()
        clients = [network.redirect(DST) for _ in range(CLIENTS)]
        await until(lambda: len(network.drain) == CLIENTS)
        ticking.pass_time(0.3)
        await until(lambda: len(taken) == limits.EARLY_DIALS)
        assert len(network.outbound.runtime.early) == limits.EARLY_DIALS
        # The others take no place from these, whose servers may be about to speak; but a new one does, after a while.
        ticking.pass_time(limits.EARLY_S)
        late = network.redirect(DST)
        await until(lambda: len(network.drain) == CLIENTS + 1)
        ticking.pass_time(0.3)
        await until(lambda: len(taken) == limits.EARLY_DIALS + 1)
        assert len(network.outbound.runtime.early) == limits.EARLY_DIALS
        for client in (*clients, late):
            client.close()
        await until(lambda: not len(network.drain) and not len(network.outbound.runtime.early))
        network.close()

    run(story)


def test_of_many_connections_at_once_to_a_server_that_speaks_first_none_waits_for_detection() -> None:
    """An app fills its pool: connections that find no room at first are tried again soon."""

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 hello\r\n")
            await reader.read()
            writer.close()

        network.fake.policies[DST] = Watch(balance_policy(MAIL))
        network.fake.names[MAIL] = Watch(reset({await network.server(greet): EndpointMeta()}))
        network.start()
        clients = [await asyncio.open_connection(sock=network.redirect(DST)) for _ in range(CLIENTS)]
        await until(lambda: len(network.drain) == CLIENTS)
        ticking.pass_time(0.3)
        await until(lambda: not len(network.outbound.runtime.early), "the first are greeted")
        ticking.pass_time(1.5 * limits.EARLY_AGAIN_S)
        for reader, writer in clients:
            assert await asyncio.wait_for(reader.readline(), 10) == b"220 hello\r\n"
            writer.close()
        network.close()

    run(story)


def refusing() -> tuple[ClientPolicy, Resolution[EndpointMeta]]:
    return balance_policy(MAIL), reset({REFUSING: EndpointMeta()})


def nobody() -> tuple[ClientPolicy, Resolution[EndpointMeta]]:
    return balance_policy(MAIL), reset({})


def forbidden() -> tuple[ClientPolicy, Resolution[EndpointMeta]]:
    policy = balance_policy(MAIL)
    closed = StreamRoute(default_meta("no-bytes"), Distribution("empty"), (), FORBIDDEN, "no bytes here")
    routes = policy.http1_routes
    return ClientPolicy(policy.meta, policy.protocol, routes, routes, (closed,)), reset({REFUSING: EndpointMeta()})


@pytest.mark.parametrize(("what", "status"), [(refusing, b"502"), (nobody, b"50"), (forbidden, b"502")])
def test_a_client_that_was_slow_hears_in_http_that_its_server_cannot_be_had(what: Any, status: bytes) -> None:
    """The dial that a client's silence caused has failed, or its bytes may not be forwarded. The proxy still waits for
    the client, which then gets an HTTP error.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        policy, known = what()
        network.fake.policies[DST] = Watch(policy)
        network.fake.names[MAIL] = Watch(known)
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        await until(lambda: len(network.drain) == 1)
        ticking.pass_time(0.3)
        await asyncio.sleep(0.05)
        ticking.pass_time(1.0)
        await until(lambda: not len(network.outbound.runtime.early), "what was begun is over")
        assert "outbound_tcp_errors_total{" not in network.metrics(), "nothing has failed yet"
        writer.write(GET)
        answer = asyncio.create_task(reader.read())
        while not answer.done():
            await asyncio.sleep(0.01)
            ticking.pass_time(0.1)
        assert (await answer).startswith(b"HTTP/1.1 " + status)
        writer.close()
        network.close()

    run(story)


@pytest.mark.parametrize("first", [b"G", b"GET / HTTP", b"\r\n"])
def test_a_request_that_pauses_after_its_first_octets_is_seen_by_routes(first: bytes) -> None:
    """As bytes it would reach the server, which no route of HTTP leads to."""

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        taken: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken.append(await reader.read())
            writer.close()

        routed = balance_policy(MAIL)
        network.fake.policies[DST] = Watch(ClientPolicy(routed.meta, routed.protocol, (), (), routed.opaque_routes))
        network.fake.names[MAIL] = Watch(reset({await network.server(serve): EndpointMeta()}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(first)
        await until(lambda: len(network.drain) == 1)
        await asyncio.sleep(0.05)
        for _ in range(8):
            ticking.pass_time(1.0)
            await asyncio.sleep(0.005)
        writer.write(GET.removeprefix(first))
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 404")
        assert not taken
        writer.close()
        network.close()

    run(story)
