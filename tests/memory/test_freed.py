"""A closed connection is freed by its references alone: nothing of ours is left for the garbage collector.

A cycle waits for the collector's oldest generation, which hardly ever runs under steady load: memory then grows
with the number of connections that ever were. So each kind of connection is used some times with the collector off,
and the test names what the collector finds afterwards.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from proxy.admin import Admin, AdminStage, Readiness, Scrapes
from proxy.api import destination_pb2, identity_pb2, services
from proxy.core.address.addr import Addr
from proxy.transport.listener import Listener
from tests.admin.kit import Log
from tests.control.controller import Controller, channel_to
from tests.inbound.kit import PEER, Workload
from tests.kit.http1 import Client
from tests.kit.network import Network, http_server
from tests.kit.sockets import Ticking, run, until
from tests.kit.topology import IN, MTLS, OUT, PAIR, PROXIED, Topology
from tests.kit.topology import until as until_blocking
from tests.memory import clients

COUNT = 12
"""How many connections of one kind are made; a cycle in each would leave at least this many objects of one class."""


class Leftovers:
    def __init__(self) -> None:
        self.by_class: Counter[str] = Counter()

    def check(self, count: int = COUNT) -> None:
        many = {name: left for name, left in self.by_class.items() if left >= count}
        assert not many, f"left for the collector by {count} connections: {many}"


@contextmanager
def collector_off() -> Iterator[Leftovers]:
    """The objects of ours made inside that only the collector could free; known at the end."""
    gc.disable()
    gc.freeze()  # what is there already is not looked at: after thousands of tests that would take a second
    gc.garbage.clear()
    found = Leftovers()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found.by_class.update(
            f"{type(one).__module__}.{type(one).__qualname__}"
            for one in gc.garbage
            if type(one).__module__.startswith("proxy.")
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


@pytest.fixture(scope="module")
def topology() -> Iterator[Topology]:
    made = Topology(
        OUTBOUND_HTTP1_CONNECTION_POOL_IDLE_TIMEOUT="20ms",
        INBOUND_HTTP1_CONNECTION_POOL_IDLE_TIMEOUT="20ms",
        SPONSON_SERVER_FIRST_DELAY="20ms",
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def app() -> Iterator[clients.App]:
    made = clients.App()
    yield made
    made.close()


def use(topology: Topology, where: Addr, client: clients.Client) -> None:
    """Use it so often that something per connection shows, after some connections that make what is shared."""
    for _ in range(3):
        client(where)
    settle(topology)
    with collector_off() as left:
        for _ in range(COUNT):
            client(where)
        settle(topology)
    left.check()
    assert not topology.faults


def settle(topology: Topology) -> None:
    """Wait until every accepted connection has ended, and every connection that was dialled for only one of them.

    One HTTP/2 connection stays between the two sides, and one to the app, because they carry the requests of all clients.
    """
    until_blocking(lambda: len(topology.drains[OUT]) == 0 and len(topology.drains[IN]) <= 1, "connections end", 20)
    apps = topology._inbound._local._apps
    until_blocking(lambda: not topology.call(lambda: sum(len(one._http1) for one in apps.values())), "pools empty", 20)


@pytest.mark.parametrize("kind", clients.ANY_KIND)
@pytest.mark.parametrize("way", [OUT, IN, PAIR])
def test_every_kind_of_connection_is_freed_when_it_ends(
    topology: Topology, app: clients.App, way: str, kind: str
) -> None:
    with topology.way(way, app.port) as where:
        use(topology, where, clients.ANY_KIND[kind])


@pytest.mark.parametrize("kind", clients.INBOUND_KIND)
def test_connections_over_tls_are_freed_when_they_end(topology: Topology, app: clients.App, kind: str) -> None:
    with topology.way(IN, app.port) as where:
        use(topology, where, clients.INBOUND_KIND[kind])


@pytest.mark.parametrize("kind", ["http1", "http1-app-resets", "tunnel"])
def test_connections_of_http1_over_tls_are_freed_when_they_end(topology: Topology, app: clients.App, kind: str) -> None:
    with topology.way(MTLS, app.port) as where:
        use(topology, where, clients.ANY_KIND[kind])


@pytest.mark.parametrize("kind", clients.DEAD_KIND)
@pytest.mark.parametrize("way", PROXIED)
def test_connections_to_nobody_are_freed_when_they_end(topology: Topology, way: str, kind: str) -> None:
    with topology.way(way, clients.dead_port()) as where:
        use(topology, where, clients.DEAD_KIND[kind])


# ---- the other ports, and connections that were not accepted


async def in_turn(use_once: Callable[[], Any], is_settled: Callable[[], bool]) -> None:
    for _ in range(3):
        await use_once()
    await until(is_settled)
    with collector_off() as left:
        for _ in range(COUNT):
            await use_once()
        await until(is_settled)
        await asyncio.sleep(0)
    left.check()


ADMIN = b"GET /live HTTP/1.1\r\nhost: admin\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nhost: admin\r\n\r\n"


@pytest.mark.parametrize("said", [ADMIN, METRICS, clients.PREFACE + clients.HTTP2_GET, b"GET / HT", clients.OPAQUE])
@pytest.mark.parametrize("is_tls", [False, True])
def test_connections_to_the_admin_port_are_freed(said: bytes, is_tls: bool) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            scrapes = Scrapes(workload.registry.pieces, ticking.reactor.steps, ticking.reactor.clock)
            admin = Admin(Readiness(), scrapes, Log(), {}, None)
            workload.original = Addr("127.0.0.1", 4191)
            pages = lambda is_local: AdminStage(admin, is_local)  # noqa: E731
            on_accept = workload.inbound.admin(workload.original, pages, workload.drain)
            listener = Listener(ticking.reactor, Addr("127.0.0.1", 0), on_accept)
            workload.listener, theirs = listener, workload.listener

            async def ask() -> None:
                client = await (workload.connect_tls(PEER) if is_tls else workload.connect())
                client.write(said)
                if said.startswith((b"GET /live", b"GET /metrics")):
                    await client.answer()
                elif said.startswith(b"PRI"):
                    await client.read(9)
                client.close()

            await in_turn(ask, lambda: not len(workload.drain))
            theirs.close()

    run(story)


ABSOLUTE = b"GET http://web.ns.svc.cluster.local/ HTTP/1.1\r\nhost: web.ns.svc.cluster.local\r\n\r\n"
CONNECT = b"CONNECT web.ns.svc.cluster.local:80 HTTP/1.1\r\nhost: web.ns.svc.cluster.local\r\n\r\n"
EXPLICIT = {
    "absolute-form": (ABSOLUTE, b"hello"),
    "connect": (CONNECT, b"\r\n\r\n"),
    "connect-then-http": (CONNECT + clients.GET, b"hello"),
    "connect-to-nobody": (CONNECT.replace(b"web.", b"nobody."), b"\r\n\r\n"),
    "absolute-form-to-nobody": (ABSOLUTE.replace(b"//web.", b"//nobody."), b"\r\n\r\n"),
    "malformed-connect": (b"CONNECT / HTTP/1.1\r\n\r\n", b"\r\n\r\n"),
    "half-a-head": (b"GET http://web", None),
    "http2": (clients.PREFACE + clients.HTTP2_GET, b"\x00\x00"),
    "nothing": (b"", None),
}


@pytest.mark.parametrize("kind", EXPLICIT)
def test_connections_of_explicit_clients_are_freed(kind: str) -> None:
    said, waits_for = EXPLICIT[kind]

    async def story(ticking: Ticking) -> None:
        network = Network(ticking, OUTBOUND_HTTP1_CONNECTION_POOL_IDLE_TIMEOUT="20ms")
        where = network.start()
        network.name("web.ns.svc.cluster.local:80", await network.server(http_server("hello")))

        async def ask() -> None:
            client = Client(*await asyncio.open_connection(*where))
            client.write(said)
            if waits_for:
                await asyncio.wait_for(client.reader.readuntil(waits_for), 10)
            elif waits_for is not None:
                await client.rest()
            client.close()

        await in_turn(ask, lambda: not len(network.drain))
        network.close()

    run(story)


def test_calls_and_watches_of_controllers_are_freed() -> None:
    controller = Controller()
    controller.start()

    def certify(request: Any, context: Any) -> Any:
        return identity_pb2.CertifyResponse(leaf_certificate=b"leaf")

    controller.on(services.CERTIFY, certify)
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)

        async def ask() -> None:
            replies: list[Any] = []
            messages: list[Any] = []
            channel.call(services.CERTIFY, identity_pb2.CertifyRequest(identity="web"), replies.append)
            request = destination_pb2.GetDestination(path="web:80")
            watching = channel.watch(services.DESTINATION_GET, request, messages.append, messages.append)
            await until(lambda: replies and feed.opened)
            watching.cancel()

        await in_turn(ask, lambda: not channel._calls)
        channel.close()

    try:
        run(story)
    finally:
        controller.stop()
