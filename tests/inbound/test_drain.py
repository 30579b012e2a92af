"""Draining the inbound side: idle connections end at once, running requests finish, and a client that has just come is
served.
"""

from __future__ import annotations

import asyncio
import ssl

import pytest

from proxy.core.address.addr import Addr
from tests.inbound.kit import PEER, Http2Client, Workload
from tests.inbound.test_own_ports import AdminPort
from tests.kit.certificates import credentials
from tests.kit.environment import NAME
from tests.kit.http1 import Client, Message, get, http1_app, ok
from tests.kit.network import hello_bytes
from tests.kit.sockets import Ticking, run, until

GET = get(host=b"web")


class Held:
    """An app that answers when the test lets it."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def __call__(self, request: Message) -> bytes:
        self.asked.set()
        await self.may_answer.wait()
        return ok(b"done")


@pytest.mark.parametrize("is_meshed", [False, True])
def test_a_request_is_finished_and_idle_connections_end(is_meshed: bool) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            connect = workload.connect_tls if is_meshed else workload.connect
            idle, idle_2 = await connect(), Http2Client(await connect())
            assert (await idle.ask(GET)).endswith(b"ok")
            idle_2.http2.feed(await idle_2.client.read(9))
            silent = await workload.connect()
            held = Held()
            app = await asyncio.start_server(http1_app(held), "127.0.0.1", 0)
            workload.original = Addr(*app.sockets[0].getsockname())
            busy = await connect()
            busy.write(GET)
            await held.asked.wait()
            is_empty: list[bool] = []
            workload.drain.begin(lambda: is_empty.append(True))
            assert await silent.rest() == b"", "silent"
            assert await idle.rest() == b"", "idle"
            while said := await asyncio.wait_for(idle_2.client.reader.read(65536), 10):
                idle_2.http2.feed(said)
                idle_2.send()
            assert set(idle_2.goaways) == {0}
            assert not is_empty
            held.may_answer.set()
            answer = await busy.rest()
            assert answer.endswith(b"done") and b"connection: close" in answer.lower()
            for one in (idle, idle_2, silent, busy):
                one.close()
            app.close()
            await until(lambda: is_empty)

    run(story)


def test_a_handshake_that_has_begun_is_finished_and_its_request_answered() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect()
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            context = credentials(PEER).client_context(False)
            tls = context.wrap_bio(incoming, outgoing, server_hostname=NAME)
            with pytest.raises(ssl.SSLWantReadError):
                tls.do_handshake()
            client.write(outgoing.read())
            incoming.write(await asyncio.wait_for(client.reader.read(65536), 10))
            workload.drain.begin(lambda: None)
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    incoming.write(await asyncio.wait_for(client.reader.read(65536), 10))
            tls.write(GET)
            client.write(outgoing.read())
            answer = b""
            while not answer.endswith(b"ok"):
                incoming.write(await asyncio.wait_for(client.reader.read(65536), 10))
                try:
                    answer += tls.read(65536)
                except ssl.SSLWantReadError:
                    pass
            assert b"connection: close" in answer.lower()
            client.close()

    run(story)


@pytest.mark.parametrize("said", [hello_bytes("elsewhere.test"), b"no protocol of ours\r\n\r\n"])
def test_what_is_no_request_to_the_admin_port_is_counted(said: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            admin = AdminPort(workload)
            client = Client(*await asyncio.open_connection(*admin.addr))
            client.write(said)
            await client.rest()
            client.close()
            assert workload.metric("inbound_tcp_errors_total", 'error="unexpected"') == 1
            assert not admin.local, "it got no pages"
            admin.close()

    run(story)
