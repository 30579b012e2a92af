"""Rows 94, 95 and 97 of the field log: endpoints that are gone, that have become somebody else, or that are slow and nothing
worse, through a client's proxy on real sockets.
"""

from __future__ import annotations

import asyncio

import pytest

from proxy.balance.endpoints import reset
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.http.h2.server import H2Server
from proxy.policy.endpoint import HINT_H2, EndpointMeta, TlsIdentity
from tests.kit.http1 import get
from tests.kit.network import Answering, MeshedPeer, Network, balance_policy, h2_request, http_server
from tests.kit.sockets import Ticking, run, until

DST = Addr("10.43.0.7", 80)
WEB = "web.ns.svc.cluster.local:80"
SERVER_ID = "web.ns.serviceaccount.identity.linkerd.cluster.local"
OTHER_ID = "other.ns.serviceaccount.identity.linkerd.cluster.local"
GET = get(b"/", b"Connection: close", host=b"web")


async def ask(network: Network) -> bytes:
    reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
    writer.write(GET)
    answer = await reader.read()
    writer.close()
    return answer


def test_row94_an_endpoint_that_was_removed_is_neither_asked_nor_dialled() -> None:
    """Not even in the background, where one that refuses is tried again and again while it is expected to come back."""

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        good = await network.server(http_server("good"))
        gone = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        was_there = Addr(*gone.sockets[0].getsockname()[:2])
        gone.close()
        await gone.wait_closed()
        known = network.fake.names[WEB] = Watch(reset({good: EndpointMeta(), was_there: EndpointMeta()}))
        network.fake.policies[DST] = Watch(balance_policy())
        network.start()
        for _ in range(10):
            assert (await ask(network)).endswith(b"good")
        dialled = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal dialled
            dialled += 1
            writer.close()

        known.set(reset({good: EndpointMeta()}))
        await network.server(serve, was_there.port)
        for _ in range(20):
            ticking.pass_time(5.0)
            await asyncio.sleep(0.005)
            assert (await ask(network)).endswith(b"good")
        assert dialled == 0
        network.close()

    run(story)


@pytest.mark.parametrize("is_http2", [True, False])
def test_row95_an_address_that_is_somebody_elses_now_gets_nothing(is_http2: bool) -> None:
    """Its TLS name does not fit, and no request is sent there, nor lost: another endpoint has it."""

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        ours, others = Answering("ours"), Answering("somebody else's")

        def peer(name: str, stage: Answering) -> MeshedPeer:
            return MeshedPeer(network, name, lambda wire: H2Server(wire, stage, ticking.reactor.clock))

        meta = EndpointMeta(tls=TlsIdentity(SERVER_ID, SERVER_ID), hint=HINT_H2)
        before, after = peer(SERVER_ID, ours), peer(OTHER_ID, others)
        network.fake.names[WEB] = Watch(reset({before.addr: meta, after.addr: meta}))
        network.fake.policies[DST] = Watch(balance_policy())
        network.start()
        for number in range(20):
            if is_http2:
                headers, body = await h2_request(network.redirect(DST), "GET", "web", f"/{number}")
                assert (headers[":status"], body) == ("200", b"ours")
            else:
                answer = await ask(network)
                assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"ours")
        assert len(ours.requests) == 20 and not others.requests
        network.close()

    run(story)


def test_row97_slow_is_not_unavailable() -> None:
    """The only endpoint accepts at once and answers after five seconds: nobody waits for an endpoint, and nobody is shed."""

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        asked, may_answer = 0, asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            await reader.readuntil(b"\r\n\r\n")
            asked += 1
            await may_answer.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")
            writer.close()

        network.fake.names[WEB] = Watch(reset({await network.server(serve): EndpointMeta()}))
        network.fake.policies[DST] = Watch(balance_policy())
        network.start()
        count = 100
        answers = [asyncio.create_task(ask(network)) for _ in range(count)]
        await until(lambda: asked == count, "all are with the endpoint")
        for _ in range(50):
            ticking.pass_time(0.1)
            await asyncio.sleep(0)
        assert not any(one.done() for one in answers)
        may_answer.set()
        assert all(one.startswith(b"HTTP/1.1 200 ") for one in await asyncio.gather(*answers))
        assert "outbound_http_errors_total{" not in network.metrics()
        network.close()

    run(story)
