"""Metrics of the outbound side and of the admin port, with the same queries as linkerd2-proxy's own tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from tests.acceptance.discovered import DST, Discovered, add, run_with_controller
from tests.control.controller import Controller
from tests.inbound.kit import Workload
from tests.kit.controlplane import ControlPlane, Sidecar, sidecar, wait_for
from tests.kit.http1 import Client, get
from tests.kit.network import Network, balance_policy, http_server
from tests.kit.sockets import Ticking, run, until
from tests.kit.wire import Peer

WEB = "web.ns.svc.cluster.local:80"
GET = b"GET / HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\n\r\n"
HELLO, BYE = b"custom tcp hello\n", b"custom tcp bye"
SRC = ('direction="outbound"', 'peer="src"', f'target_addr="{DST}"', 'tls="no_identity",no_tls_reason="loopback"')
FAMILIES = ("request_total", "response_total", "response_latency_ms_count")


def lines(network: Network, name: str, *needles: str) -> list[str]:
    page = network.metrics().splitlines()
    return [line for line in page if line.startswith(f"{name}{{") and all(one in line for one in needles)]


def metric(network: Network, name: str, *needles: str) -> float:
    """The sum of a family's samples that have all of these labels."""
    return sum(float(line.rpartition(" ")[2]) for line in lines(network, name, *needles))


async def connect(network: Network) -> Client:
    return Client(*await asyncio.open_connection(sock=network.redirect(DST)))


def calls(network: Network, server: Addr) -> tuple[str, ...]:
    """Serve DST, a service with this one server. Returns the labels of its endpoint."""
    network.fake.policies[DST] = Watch(balance_policy())
    network.name(WEB, server)
    network.start()
    return 'direction="outbound"', f'target_addr="{server}"'


@pytest.mark.acceptance("TELE-05", "TELE-07")
def test_requests_and_responses() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        endpoint = calls(network, await network.server(http_server("web")))
        client = await connect(network)
        assert not lines(network, "request_total") and not lines(network, "response_total")
        assert (await client.ask(GET)).endswith(b"web")
        assert metric(network, "request_total", *endpoint) == metric(network, "request_total") == 1
        assert metric(network, "response_total", *endpoint) == metric(network, "response_total") == 1
        client.close()
        network.close()

    run(story)


@pytest.mark.acceptance("TELE-09")
@pytest.mark.parametrize("status", [200, 304, 400, 418, 504, 500])
def test_classes_by_status(status: int) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)
            writer.close()

        endpoint = calls(network, await network.server(serve))
        client = await connect(network)
        assert (await client.ask(GET)).startswith(b"HTTP/1.1 %d " % status)
        (line,) = lines(network, "response_total", *endpoint)
        assert f'status_code="{status}"' in line and line.endswith(" 1")
        assert ('classification="failure"' in line) is (status >= 500)
        client.close()
        network.close()

    run(story)


class Held:
    """An app that answers once time has passed."""

    def __init__(self, ticking: Ticking) -> None:
        self._ticking = ticking
        self._asked = asyncio.Event()
        self._may_answer = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self._asked.set()
                await self._may_answer.wait()
                self._may_answer.clear()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except asyncio.IncompleteReadError:
            writer.close()

    async def answer_after(self, client: Client, seconds: float) -> None:
        client.write(GET)
        await self._asked.wait()
        self._asked.clear()
        self._ticking.pass_time(seconds)
        self._may_answer.set()
        assert (await client.answer()).endswith(b"ok")


@pytest.mark.acceptance("TELE-10")
def test_latencies() -> None:
    async def story(ticking: Ticking) -> None:
        held = Held(ticking)
        network = Network(ticking)
        server = await network.server(held)
        calls(network, server)
        async with Workload(ticking) as workload:
            workload.original = server
            outbound, inbound = await connect(network), await workload.connect()
            for count, took_s, shorts in ((1, 0.5, "0"), (2, 0.04, "1"), (3, 0.5, "1")):
                for client in (outbound, inbound):
                    await held.answer_after(client, took_s)
                for page in (network.metrics(), workload.registry.render().decode()):
                    found = {
                        line.partition('le="')[2].partition('"')[0]: line.rpartition(" ")[2]
                        for line in page.splitlines()
                        if line.startswith("response_latency_ms_bucket{") and 'status_code="200"' in line
                    }
                    assert (found["1000"], found["50"], found["+Inf"]) == (str(count), shorts, str(count))
                assert metric(network, "response_latency_ms_count", 'status_code="200"') == count
                assert workload.metric("response_latency_ms_count", 'status_code="200"') == count
            outbound.close()
            inbound.close()
        network.close()

    run(story)


# ---- labels of discovery


@pytest.mark.parametrize(
    ("of_addresses", "of_set", "expected"),
    [
        pytest.param(
            {"addr_label1": "foo", "addr_label2": "bar"},
            {},
            'dst_addr_label1="foo",dst_addr_label2="bar"',
            marks=pytest.mark.acceptance("TELE-11"),
            id="address",
        ),
        pytest.param(
            {},
            {"set_label1": "foo", "set_label2": "bar"},
            'dst_set_label1="foo",dst_set_label2="bar"',
            marks=pytest.mark.acceptance("TELE-12"),
            id="set",
        ),
        pytest.param(
            {"addr_label": "foo"},
            {"set_label": "bar"},
            'dst_addr_label="foo",dst_set_label="bar"',
            marks=pytest.mark.acceptance("TELE-13"),
            id="both",
        ),
    ],
)
def test_labels_of_an_endpoint(of_addresses: dict[str, str], of_set: dict[str, str], expected: str) -> None:
    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller)
        server = await network.server(http_server("web"))
        network.start()
        client = await connect(network)
        client.write(GET)
        await network.stream(1)
        network.endpoints.say(add(server, of_set=of_set, of_each=of_addresses))
        assert (await client.answer()).endswith(b"web")
        for family in FAMILIES:
            (line,) = lines(network, family)
            assert f",{expected}" in line and f'target_addr="{server}"' in line and line.endswith(" 1")
        client.close()
        network.close()

    run_with_controller(story)


@pytest.mark.acceptance("TELE-14")
@pytest.mark.parametrize("kind", ["addr", "set"])
def test_changed_labels_are_another_series(kind: str) -> None:
    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller)
        server = await network.server(http_server("web"))
        network.start()
        client = await connect(network)

        def say(value: str) -> None:
            labels = {"label": value}
            network.endpoints.say(add(server, of_set=labels) if kind == "set" else add(server, of_each=labels))

        client.write(GET)
        await network.stream(1)
        say("foo")
        await client.answer()
        before = 1
        say("bar")
        while not lines(network, "request_total", 'dst_label="bar"'):
            await client.ask(GET)
            before += not lines(network, "request_total", 'dst_label="bar"')
        await client.ask(GET)
        for family in FAMILIES:
            assert metric(network, family, 'dst_label="foo"') == before
            assert metric(network, family, 'dst_label="bar"') == 2
        client.close()
        network.close()

    run_with_controller(story)


# ---- connections


@pytest.mark.acceptance("TELE-18", "TELE-31")
def test_http_connections_of_the_app() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        calls(network, await network.server(http_server("web")))
        for count in (1, 2):
            client = await connect(network)
            assert (await client.ask(GET)).endswith(b"web")
            assert metric(network, "tcp_open_total", *SRC) == count
            assert metric(network, "tcp_open_connections", *SRC) == 1
            client.close()
            await until(lambda: metric(network, "tcp_close_total", *SRC, 'errno=""') == count)  # noqa: B023
            assert metric(network, "tcp_open_connections", *SRC) == 0
        network.close()

    run(story)


@pytest.mark.acceptance("TELE-20")
def test_http_connections_to_an_endpoint_are_shared() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        endpoint = calls(network, await network.server(http_server("web")))
        client = await connect(network)
        for _ in range(2):
            assert (await client.ask(GET)).endswith(b"web")
            assert metric(network, "tcp_open_total", 'peer="dst"', *endpoint) == 1
        client.close()
        network.close()

    run(story)


async def one_exchange(network: Network) -> Client:
    """A connection that has sent HELLO and received BYE."""
    client = await connect(network)
    client.write(HELLO)
    assert await client.read(len(BYE)) == BYE
    return client


async def tcp_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    assert await reader.readexactly(len(HELLO)) == HELLO
    writer.write(BYE)
    assert await reader.read() == b""
    writer.close()


@pytest.mark.acceptance("TELE-22", "TELE-26", "TELE-28")
def test_forwarded_bytes() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        endpoint = calls(network, await network.server(tcp_server))
        client = await one_exchange(network)
        server = ('peer="dst"', *endpoint)
        assert metric(network, "tcp_open_total", *server) == 1
        assert metric(network, "tcp_write_bytes_total", *SRC) == 14
        assert metric(network, "tcp_write_bytes_total", *server) == 17
        assert metric(network, "tcp_read_bytes_total", *SRC) == 17
        assert metric(network, "tcp_read_bytes_total", *server) == 14
        client.close()
        network.close()

    run(story)


@pytest.mark.acceptance("TELE-24", "TELE-29")
def test_forwarded_connections() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        calls(network, await network.server(tcp_server))
        for count in (1, 2):
            client = await one_exchange(network)
            assert metric(network, "tcp_open_total", *SRC) == count
            assert metric(network, "tcp_open_connections", *SRC) == 1
            client.close()
            await until(lambda: metric(network, "tcp_close_total", *SRC, 'errno=""') == count)  # noqa: B023
            assert metric(network, "tcp_open_connections", *SRC) == 0
        network.close()

    run(story)


# ---- the admin port


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar without a certificate that has had no request yet; its admin port answers already."""
    control = ControlPlane()
    control.start()
    try:
        with sidecar(control, tmp_path_factory.mktemp("sidecar"), is_ready=False) as made:
            yield made
    finally:
        control.stop()


@pytest.mark.acceptance("TELE-01", "TELE-02", "TELE-03")
def test_the_admin_port_counts_its_own_clients(proxy: Sidecar) -> None:
    admin = ('direction="inbound"', f'target_addr="{proxy.address("Admin")}"')

    def scraped(client: Peer, name: str, *needles: str) -> list[float]:
        page = client.ask(get(b"/metrics", host=b"localhost")).body.decode().splitlines()
        found = [line for line in page if line.startswith(f"{name}{{") and all(one in line for one in needles)]
        return [float(line.rpartition(" ")[2]) for line in found]

    with Peer(proxy.connect("Admin")) as first:
        assert scraped(first, "request_total", *admin) == [1]
        assert scraped(first, "tcp_open_total", *admin, 'peer="src"') == [1]
        assert scraped(first, "tcp_open_total", 'peer="dst"') == []
        assert scraped(first, "tcp_close_total") == []
    with Peer(proxy.connect("Admin")) as second:
        wait_for(lambda: scraped(second, "tcp_close_total", *admin, 'peer="src"') == [1], proxy)
        assert scraped(second, "tcp_open_total", *admin, 'peer="src"') == [2]
        assert scraped(second, "tcp_open_connections", *admin, 'peer="src"') == [1]
        assert scraped(second, "tcp_open_total", 'peer="dst"') == []
