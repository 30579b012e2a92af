"""Row B30: through a transport header no peer reaches this proxy's own outbound or control port, nor counts as local
at its admin port.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.admin import Admin, AdminStage, Readiness, Scrapes
from proxy.core.address.addr import Addr
from proxy.core.address.here import ADMIN, CONTROL, OUTBOUND
from proxy.http.exchange import Stage
from proxy.transport.detection.header import TransportHeader
from proxy.transport.listener import Listener
from tests.inbound.kit import Http2Client, Workload
from tests.kit.http1 import Client
from tests.kit.sockets import Ticking, run, until

POST = b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\n\r\n"
LIVE = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Silent:
    """core.log.Logging, as far as these tests need it."""

    is_off = False
    filter = "warn"

    def set(self, text: str) -> None:
        self.filter = text


class AdminPort:
    """The admin listener of a workload; `asked` counts requests of clients that may shut it down."""

    def __init__(self, workload: Workload) -> None:
        self.asked = 0
        self.local: list[bool] = []
        self.log = Silent()
        reactor = workload.ticking.reactor
        scrapes = Scrapes(workload.registry.pieces, reactor.steps, reactor.clock)
        self._admin = Admin(Readiness(), scrapes, self.log, {}, self._shut_down)
        self._listener = Listener(workload.ticking.reactor, Addr("127.0.0.1", 0), lambda sock, peer: accept(sock, peer))
        accept = workload.inbound.admin(self._listener.addr, self._pages, workload.drain)
        self.addr = self._listener.addr

    def _shut_down(self) -> bool:
        self.asked += 1
        return True

    def _pages(self, is_local: bool) -> Stage:
        self.local.append(is_local)
        return AdminStage(self._admin, is_local)

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("session", ["", "http/1", "http/2"])
@pytest.mark.parametrize("purpose", [OUTBOUND, CONTROL])
def test_our_own_ports_are_no_apps(session: Any, purpose: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.inbound.here.listens(Addr("127.0.0.1", workload.app.port), purpose)
            client = await workload.connect_direct(TransportHeader(workload.app.port, "", session))
            if session == "http/2":
                answered = await Http2Client(client).get("/", ("l5d-orig-proto", "HTTP/1.1"))
                assert answered.status == "500"
            elif session:
                assert (await client.ask(LIVE)).startswith(b"HTTP/1.1 500 ")
            else:
                client.write(LIVE)
                assert await client.reader.read() == b""
            client.close()
            assert workload.app.saw == []

    run(story)


def test_nor_are_they_by_redirection() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.inbound.here.listens(Addr("0.0.0.0", workload.app.port), OUTBOUND)
            client = await workload.connect()
            assert (await client.ask(LIVE)).startswith(b"HTTP/1.1 500 ")
            client.close()
            assert workload.app.saw == []

    run(story)


@pytest.mark.parametrize("session", ["http/1", "http/2"])
def test_a_peer_may_look_at_the_admin_port_and_not_command_it(session: Any) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            admin = AdminPort(workload)
            client = await workload.connect_direct(TransportHeader(admin.addr.port, "", session))
            if session == "http/1":
                assert (await client.ask(LIVE)).endswith(b"live\n")
                assert (await client.ask(POST)).startswith(b"HTTP/1.1 403 ")
                put = b"PUT /proxy-log-level HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\ntrace"
                assert (await client.ask(put)).startswith(b"HTTP/1.1 403 ")
            else:
                http2 = Http2Client(client)
                assert (await http2.get("/live", authority="localhost")).status == "200"
                assert (await http2.get("/shutdown", method="POST", authority="localhost")).status == "403"
            client.close()
            assert (admin.asked, admin.log.filter, admin.local) == (0, "warn", [False])
            admin.close()

    run(story)


def test_opaque_bytes_do_not_reach_the_admin_port() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            admin = AdminPort(workload)
            client = await workload.connect_direct(TransportHeader(admin.addr.port))
            client.write(POST)
            assert await client.reader.read() == b""
            client.close()
            assert (admin.asked, admin.local) == (0, [])
            admin.close()

    run(story)


def test_a_connection_that_this_proxy_made_is_not_local_at_the_admin_port() -> None:
    """If such a connection reaches the admin port after all, its local end shows that this proxy made it, so it does
    not count as a client on this machine.
    """

    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            admin = AdminPort(workload)
            workload.inbound.here.listeners.clear()  # it does not know that the port is its own
            client = await workload.connect_direct(TransportHeader(admin.addr.port))
            assert (await client.ask(POST)).startswith(b"HTTP/1.1 403 ")
            client.close()
            workload.inbound.here.listens(admin.addr, ADMIN)
            local = await connect(admin.addr)
            assert (await local.ask(POST)).startswith(b"HTTP/1.1 200 ")
            local.close()
            assert (admin.asked, admin.local) == (1, [False, True])
            admin.close()

    run(story)


def test_a_connection_to_the_app_that_comes_back_is_not_accepted() -> None:
    """A connection to the app that comes back to the inbound port is not accepted. That happens if a redirect rule
    does not exempt the proxy's own connections.
    """

    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            back = Listener(ticking.reactor, Addr("127.0.0.1", 0), workload.inbound.accept)
            workload.original = back.addr
            client = await workload.connect()
            client.write(LIVE)
            await until(lambda: workload.metric("sponson_connection_faults_total", 'reason="loop"') == 1)
            assert (await client.read(14)).startswith(b"HTTP/1.1 502 ")
            client.close()
            back.close()

    run(story)


async def connect(where: Addr) -> Client:
    return Client(*await asyncio.open_connection(*where))
