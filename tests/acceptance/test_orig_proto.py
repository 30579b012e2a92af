"""HTTP/1 carried over HTTP/2 between proxies: each proxy alone, against an independent peer."""

from __future__ import annotations

import asyncio

import pytest

from proxy.core.address.addr import Addr
from proxy.core.failure.reason import Reason
from proxy.core.failure.troubles import Troubles
from proxy.core.watch import Watch
from proxy.http.exchange import Exchange
from proxy.http.h2.frames.codes import ENHANCE_YOUR_CALM
from proxy.metrics.registry import Registry
from proxy.outbound.http.rescue import Rescue
from proxy.policy.client import ClientPolicy, forward_policy
from proxy.policy.endpoint import HINT_H2, EndpointMeta
from proxy.policy.meta import default_meta
from tests.inbound.kit import PEER, Http2Client, Workload
from tests.kit.http2 import Fields, http2_app, ok
from tests.kit.network import Network, ask, balance_policy, h2_request, http_server
from tests.kit.sockets import Ticking, run
from tests.kit.streams import FakeServer, request_head

WEB = "web.ns.svc.cluster.local:80"
DST = Addr("10.43.0.7", 80)
GET = b"GET /hint HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\n\r\n"
HINTED = EndpointMeta(hint=HINT_H2)


def calls(network: Network, server: Addr, meta: EndpointMeta) -> None:
    """Serve DST, a service with this one endpoint."""
    network.fake.policies[DST] = Watch(balance_policy())
    network.name(WEB, server, meta=meta)
    network.start()


@pytest.mark.acceptance("ORIG-01", "ORIG-05")
def test_http_1_to_a_hinted_endpoint() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: list[Fields] = []
        server = await network.server(http2_app(lambda _: ok(b"carried", ("l5d-orig-proto", "HTTP/1.1")), seen))
        calls(network, server, HINTED)
        answer = await ask(network, DST, GET)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"carried" in answer and b"l5d-" not in answer
        (request,) = seen
        assert [value for name, value in request if name == "l5d-orig-proto"] == ["HTTP/1.1"]
        assert dict(request)[":path"] == "/hint"
        network.close()

    run(story)


@pytest.mark.acceptance("ORIG-02")
def test_a_carried_request_arrives_as_http_1() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = Http2Client(await workload.connect_tls())
            answered = await client.get("/h1", ("l5d-orig-proto", "HTTP/1.1"), authority="web.ns.svc.cluster.local")
            assert answered.status == "200" and answered.body == b"ok"
            head = b"get /h1 http/1.1\r\nhost: web.ns.svc.cluster.local\r\n"
            assert workload.app.all_said.lower() == head + f"l5d-client-id: {PEER}\r\n\r\n".encode()
            client.close()

    run(story)


@pytest.mark.acceptance("ORIG-03")
def test_http_1_without_a_hint_stays_http_1() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: list[bytes] = []
        calls(network, await network.server(http_server("plain", seen)), EndpointMeta())
        assert (await ask(network, DST, GET)).endswith(b"plain")
        assert seen[0].startswith(b"GET /hint HTTP/1.1\r\n") and b"l5d-orig-proto" not in seen[0]
        network.close()

    run(story)


@pytest.mark.acceptance("ORIG-04", "ORIG-07")
@pytest.mark.parametrize("meta", [EndpointMeta(), HINTED], ids=["unknown", "hinted"])
def test_http_2_stays_http_2(meta: EndpointMeta) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: list[Fields] = []
        calls(network, await network.server(http2_app(lambda _: ok(b"two"), seen)), meta)
        headers, body = await h2_request(network.redirect(DST), "GET", "web", "/hint")
        assert headers[":status"] == "200" and body == b"two"
        assert "l5d-orig-proto" not in dict(seen[0])
        network.close()

    run(story)


@pytest.mark.acceptance("ORIG-06")
def test_an_upgrade_to_a_hinted_endpoint_goes_over_http_1() -> None:
    """An upgrade takes an HTTP/1 connection of its own, because the endpoint's other connection speaks HTTP/2 from its
    first byte.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        heads: list[bytes] = []
        carried: list[Fields] = []

        async def either(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            first = await reader.readuntil(b"\r\n\r\n")
            if first.startswith(b"PRI"):
                rest = asyncio.StreamReader()
                rest.feed_data(first)
                await asyncio.gather(pump(reader, rest), http2_app(lambda _: ok(), carried)(rest, writer))
                return
            heads.append(first)
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: linkerdrocks\r\n\r\n")
            writer.write(await reader.read(100))
            writer.close()

        calls(network, await network.server(either), HINTED)
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(GET[:-2] + b"Connection: upgrade\r\nUpgrade: linkerdrocks\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        writer.write(b"rocks")
        assert await reader.readexactly(5) == b"rocks"
        writer.close()
        (head,) = heads
        assert head.startswith(b"GET /hint HTTP/1.1\r\n") and b"l5d-orig-proto" not in head and not carried
        network.close()

    run(story)


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamReader) -> None:
    while data := await source.read(65536):
        sink.feed_data(data)
    sink.feed_eof()


def forwarded(server: Addr) -> ClientPolicy:
    return forward_policy(default_meta("endpoint"), server, HINTED)


@pytest.mark.acceptance("TRANS-37")
@pytest.mark.parametrize("is_balanced", [True, False], ids=["balanced", "forwarded"])
def test_a_reset_of_the_peer_is_a_502_for_http_1(is_balanced: bool) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: list[Fields] = []
        server = await network.server(http2_app(lambda _: ENHANCE_YOUR_CALM, seen))
        calls(network, server, HINTED)
        if not is_balanced:
            network.fake.policies[DST] = Watch(forwarded(server))
        answer = await ask(network, DST, GET)
        assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        said = b"upgraded connection failed with HTTP/2 reset: detected excessive load generating behavior"
        assert b"l5d-proxy-error: endpoint %b: %b\r\n" % (str(server).encode(), said) in answer
        assert ("l5d-orig-proto", "HTTP/1.1") in seen[0]
        network.close()

    run(story)


class Named:
    """A Place."""

    def __init__(self, context: str) -> None:
        self.context = context


@pytest.mark.acceptance("ORIG-08", "ORIG-09")
@pytest.mark.parametrize("context", ["", "endpoint 10.0.0.1:80", "logical web:80: endpoint 10.0.0.1:80"])
def test_a_reset_is_found_under_whatever_it_happened_in(context: str) -> None:
    """Linkerd walks a chain of errors. Here the names around a failure are the exchange's context, and the failure
    itself is its reason and its code: both are found however many names there are, and the answer has them.
    """

    def failed(reason: Reason, code: int = 0) -> tuple[bytes, Exchange]:
        server = FakeServer()
        exchange = Exchange(server, request_head(), 0.0)
        exchange.rescue = Rescue(Registry(lambda: 0.0), False, Troubles(lambda: 0.0))
        exchange.endpoint = Named(context)
        exchange.reset_code = code
        exchange.response_reset(reason)
        assert server.head is not None and server.head.status == 502
        return next(one.value for one in server.head.fields if one.name == b"l5d-proxy-error"), exchange

    prefix = f"{context}: ".encode() if context else b""
    for reason in (Reason.PEER_RESET, Reason.PEER_REFUSED):
        text, exchange = failed(reason, ENHANCE_YOUR_CALM)
        assert text.startswith(prefix + b"upgraded connection failed with HTTP/2 reset: detected excessive load")
        assert (exchange.reason, exchange.reset_code) == (reason, ENHANCE_YOUR_CALM)
    for reason in (Reason.CONNECTION_RESET, Reason.PEER_CLOSED):
        text, exchange = failed(reason)
        assert b"upgraded" not in text and exchange.reason is reason


@pytest.mark.acceptance("ORIG-10", "ORIG-11")
@pytest.mark.parametrize(
    ("mark", "target"), [("HTTP/1.1", b"/"), ("HTTP/1.1; absolute-form", b"http://web.ns.svc.cluster.local/")]
)
def test_both_forms_arrive_as_they_were_sent(mark: str, target: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello world!"
            client = Http2Client(await workload.connect_tls())
            answered = await client.get("/", ("l5d-orig-proto", mark), authority="web.ns.svc.cluster.local")
            assert answered.status == "200" and answered.body == b"Hello world!"
            assert workload.app.all_said.startswith(b"GET %b HTTP/1.1\r\n" % target)
            client.close()

    run(story)
