"""outbound_http_route_* and outbound_grpc_route_*: what is counted for requests by route and by backend."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from contextlib import suppress
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.metrics.registry import Registry
from proxy.outbound import labels
from proxy.outbound.http.numbers import RouteNumbers, RouteOf
from proxy.policy.client import (
    FIRST_AVAILABLE,
    GRPC,
    HTTP_1,
    Backend,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    Distribution,
    Fail,
    Forward,
    RouteBackend,
    Timeouts,
)
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta, default_meta
from proxy.policy.routes.route import FailureInjector, Redirect, Unusable
from tests.kit.http1 import Message, http1_app
from tests.kit.http2 import Http2Client, http2_app
from tests.kit.network import SERVICE, Network, balance_policy
from tests.kit.page import by_label, samples, value
from tests.kit.sockets import REFUSING, Ticking, run, until
from tests.kit.streams import FakeServer

WEB = "web.ns.svc.cluster.local:80"
DST = Addr("10.43.0.7", 80)
ROUTE = "outbound_http_route_"
BACKEND = ROUTE + "backend_"
GRPC_ROUTE = "outbound_grpc_route_"

RESPONSES = {
    "/200": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "/204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "/418": b"HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n",
    "/bad": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n",
    "/short": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nok",
    "/pieces": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
}


def web(request: Message) -> bytes:
    return RESPONSES[request.target.decode()]


async def ask(network: Network, path: str, host: str = "web", body: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
    method = b"POST" if body else b"GET"
    head = b"%b %b HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    writer.write(head % (method, path.encode(), host.encode(), len(body)) + body)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def web_network(ticking: Ticking, policy: ClientPolicy | None = None, **changes: str | None) -> Network:
    network = Network(ticking, **changes)
    network.fake.policies[DST] = Watch(policy or balance_policy())
    server = await network.server(http1_app(web))
    network.fake.names[WEB] = Watch(reset({server: EndpointMeta()}))
    network.start()
    return network


def break_off(writer: asyncio.StreamWriter) -> None:
    """End the connection by a reset, because a FIN would only be passed on."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def filtered(*filters: Any) -> ClientPolicy:
    routes = (ClientRoute(default_meta("http"), (), (ClientRule((), filters, Distribution(FIRST_AVAILABLE)),)),)
    return ClientPolicy(SERVICE, HTTP_1, routes, routes)


PARENT = {
    "parent_group": "core",
    "parent_kind": "Service",
    "parent_namespace": "ns",
    "parent_name": "web",
    "parent_port": "80",
    "parent_section_name": "",
}
NAMED = {**PARENT, "route_group": "", "route_kind": "default", "route_namespace": "", "route_name": "http"}


@pytest.mark.acceptance("RTM-01", "RTM-03", "RTM-07")
def test_a_route_and_its_backend_count_requests_by_status() -> None:
    async def story(ticking: Ticking) -> None:
        network = await web_network(ticking)
        for path in ("/200", "/204", "/200", "/418", "/bad", "/short"):
            await ask(network, path)
        page = network.metrics()
        for family in (ROUTE + "request_statuses_total", BACKEND + "response_statuses_total"):
            assert by_label(page, family, "http_status", error="") == {"200": 2, "204": 1, "418": 1}
            assert by_label(page, family, "http_status", error="UNKNOWN") == {"200": 1}, "its body was no body"
            assert by_label(page, family, "http_status", error="IO") == {"200": 1}, "its connection was lost"
        assert value(page, BACKEND + "requests_total") == 6
        assert value(page, ROUTE + "request_duration_seconds_count") == 6
        assert value(page, BACKEND + "response_duration_seconds_count") == 6
        (status,) = samples(page, ROUTE + "request_statuses_total", http_status="204")
        assert list(status.labels.items()) == [*NAMED.items(), ("hostname", ""), ("http_status", "204"), ("error", "")]
        (requests,) = samples(page, BACKEND + "requests_total")
        backend = {name.replace("parent", "backend"): said for name, said in PARENT.items()}
        assert list(requests.labels.items()) == [*NAMED.items(), *backend.items()]
        network.close()

    run(story)


@pytest.mark.acceptance("RTM-01", "RTM-07")
def test_what_the_proxy_itself_answers_is_an_error_without_a_status() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy())
        network.fake.names[WEB] = Watch(reset({}))
        network.start()
        waiting = asyncio.create_task(ask(network, "/200"))
        await until(lambda: ("endpoints", WEB) in network.fake.asked)
        await asyncio.sleep(0)
        while not waiting.done():
            ticking.pass_time(0.1)
            await asyncio.sleep(0.01)
        await ask(network, "/200")
        page = network.metrics()
        assert by_label(page, ROUTE + "request_statuses_total", "error", http_status="") == {
            "FAIL_FAST": 1,
            "LOAD_SHED": 1,
        }
        assert by_label(page, BACKEND + "response_statuses_total", "error", http_status="") == {"FAIL_FAST": 1}
        assert value(page, BACKEND + "requests_total") == 1, "what is shed has reached no backend"
        network.fake.policies[DST].set(filtered(Unusable("nobody reads this")))
        await ask(network, "/200")
        assert by_label(network.metrics(), ROUTE + "request_statuses_total", "error")["UNKNOWN"] == 1
        network.close()

    run(story)


def test_what_a_policy_answers_is_counted_by_its_status() -> None:
    async def story(ticking: Ticking) -> None:
        network = await web_network(ticking, filtered(FailureInjector(418, "short and stout")))
        await ask(network, "/200")
        network.fake.policies[DST].set(filtered(Redirect(path="/elsewhere", status=307)))
        await ask(network, "/200")
        page = network.metrics()
        assert by_label(page, ROUTE + "request_statuses_total", "http_status", error="") == {"418": 1, "307": 1}
        assert value(page, BACKEND + "requests_total") == 0
        network.close()

    run(story)


@pytest.mark.parametrize(
    ("dispatch", "filters", "name", "status"),
    [
        (Fail("it has no dispatcher"), (FailureInjector(500, "Service not found web"),), "fail", "500"),
        (Fail("it has no dispatcher"), (), "fail", ""),
        (Forward(REFUSING), (), "unknown", "502"),
        (Forward(REFUSING), (Redirect(path="/elsewhere", status=307),), "unknown", "307"),
    ],
)
def test_what_a_backend_s_filters_answer_counts_as_the_backend_s(
    dispatch: Fail | Forward, filters: tuple[Any, ...], name: str, status: str
) -> None:
    """As with Linkerd, backends that cannot be reached, and those that are one address, have a label in common."""

    async def story(ticking: Ticking) -> None:
        backend = RouteBackend(Backend(Meta("core", "Service", "web", "ns", port=80), dispatch), 1, filters)
        rule = ClientRule((), (), Distribution(FIRST_AVAILABLE, (backend,)))
        routes = (ClientRoute(default_meta("http"), (), (rule,)),)
        network = await web_network(ticking, ClientPolicy(SERVICE, HTTP_1, routes, routes))
        await ask(network, "/200")
        page = network.metrics()
        assert by_label(page, BACKEND + "requests_total", "backend_name") == {name: 1}
        (ended,) = samples(page, BACKEND + "response_statuses_total")
        assert (ended.labels["backend_kind"], ended.labels["http_status"]) == ("default", status)
        network.close()

    run(story)


def test_a_dead_endpoint_s_502_is_a_status() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch(balance_policy())
        network.fake.names[WEB] = Watch(reset({Addr("127.0.0.1", 1): EndpointMeta()}))
        network.start()
        assert (await ask(network, "/200")).startswith(b"HTTP/1.1 502")
        page = network.metrics()
        for family in (ROUTE + "request_statuses_total", BACKEND + "response_statuses_total"):
            assert by_label(page, family, "http_status", error="") == {"502": 1}
        network.close()

    run(story)


@pytest.mark.acceptance("RTM-02")
def test_a_timeout_of_the_route_is_no_response_of_the_endpoint() -> None:
    """The client gets a 504, which the proxy made: response_total has the endpoint's failure without a status, as with Linkerd."""

    async def story(ticking: Ticking) -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        network = Network(ticking)
        distribution = Distribution(FIRST_AVAILABLE, (RouteBackend(balance_backend()),))
        routes = (ClientRoute(default_meta("http"), (), (ClientRule((), (), distribution, Timeouts(request_s=1.0)),)),)
        network.fake.policies[DST] = Watch(ClientPolicy(SERVICE, HTTP_1, routes, routes))
        network.fake.names[WEB] = Watch(reset({await network.server(silent): EndpointMeta()}))
        network.start()
        asking = asyncio.create_task(ask(network, "/200"))
        await until(lambda: value(network.metrics(), "request_total", direction="outbound") == 1)
        while not asking.done():
            ticking.pass_time(0.1)
            await asyncio.sleep(0.01)
        assert asking.result().startswith(b"HTTP/1.1 504 ")
        page = network.metrics()
        (ended,) = samples(page, "response_total", direction="outbound")
        assert (ended.labels["classification"], ended.labels["error"]) == ("failure", "unclassified")
        assert "status_code" not in ended.labels
        assert value(page, "response_latency_ms_count", direction="outbound") == 0
        network.close()

    run(story)


def test_a_request_for_another_identity_has_reached_no_endpoint() -> None:
    async def story(ticking: Ticking) -> None:
        network = await web_network(ticking)
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(b"GET /200 HTTP/1.1\r\nHost: web\r\nl5d-require-id: other\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer.startswith(b"HTTP/1.1 502 ") and b"required id" in answer
        writer.close()
        assert value(network.metrics(), "request_total", direction="outbound") == 0
        assert value(network.metrics(), BACKEND + "requests_total") == 1
        network.close()

    run(story)


def test_hosts_are_labels_where_that_is_asked_for() -> None:
    async def story(ticking: Ticking) -> None:
        network = await web_network(ticking, OUTBOUND_METRICS_HOSTNAME_LABELS="true")
        for path, host in (
            ("/200", "great.website"),
            ("/418", "GREAT.website:80"),
            ("/200", "other.website"),
            ("/200", "10.1.2.3:80"),
            ("/200", "[fd00::1]"),
        ):
            await ask(network, path, host)
        page = network.metrics()
        statuses = ROUTE + "request_statuses_total"
        assert by_label(page, statuses, "hostname") == {"great.website": 2, "other.website": 1, "": 2}
        assert by_label(page, statuses, "http_status", hostname="great.website") == {"200": 1, "418": 1}
        assert by_label(page, ROUTE + "request_duration_seconds_count", "hostname")["great.website"] == 2
        assert not any("hostname" in one.labels for one in samples(page, BACKEND + "response_statuses_total"))
        network.close()

    run(story)


@pytest.mark.acceptance("RTM-03")
def test_hosts_are_no_labels_otherwise() -> None:
    async def story(ticking: Ticking) -> None:
        network = await web_network(ticking)
        await ask(network, "/200", "great.website")
        await ask(network, "/418", "other.website")
        assert by_label(network.metrics(), ROUTE + "request_statuses_total", "hostname") == {"": 2}
        network.close()

    run(story)


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        (b"web", "web"),
        (b"Web.NS.svc:8080", "web.ns.svc"),
        (b"under_score.x.", "under_score.x."),
        (b"10.0.0.1:80", ""),
        (b"[::1]:80", ""),
        (b"1.2", ""),
        (b"a..b", ""),
        (b"-a.b", ""),
        (b"", ""),
        (b"a" * 64, ""),
        (b".".join([b"a" * 60] * 5), ""),
        (b'a"b', ""),
    ],
)
def test_a_host_is_a_label_if_it_is_a_name(authority: bytes, name: str) -> None:
    assert labels.hostname(authority) == name


def test_hosts_that_clients_make_up_are_bounded() -> None:
    registry = Registry(lambda: 0.0)
    numbers = RouteNumbers(registry, RouteOf(SERVICE, default_meta("http"), False), True)

    for number in range(5000):
        made = Exchange(FakeServer(), RequestHead(b"GET", b"http", b"host-%d.example" % number, b"/", [], 0), 0.0)
        numbers.begin(made)
        assert made.request_frames is not None
        made.request_frames.observe(1)
    found = list(samples(registry.render().decode(), ROUTE + "request_frame_size_bytes_count"))
    assert len(found) <= 102 and sum(one.value for one in found) == 5000
    (other,) = [one for one in found if one.labels["hostname"] == "(other)"]
    assert other.labels["route_name"] == "http" and other.value == 4901, (
        "one of the 100 is the route itself, without a name"
    )
    kept = [one for one in gc.get_objects() if isinstance(one, RouteNumbers) and one.of is numbers.of]
    assert len(kept) <= limits.LABEL_NAMES + 1, "what is kept of hosts is bounded too, not only what is shown"


@pytest.mark.acceptance("RTM-04")
def test_frames_of_requests_are_counted_when_they_come_and_not_those_of_responses() -> None:
    async def story(ticking: Ticking) -> None:
        network = await web_network(ticking)
        size = ROUTE + "request_frame_size_bytes"
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(b"POST /pieces HTTP/1.1\r\nHost: web\r\nTransfer-Encoding: chunked\r\n\r\n")
        await until(lambda: value(network.metrics(), BACKEND + "requests_total") == 1)
        assert value(network.metrics(), size + "_count") == 0
        writer.write(b"5\r\nhello\r\n")
        await until(lambda: value(network.metrics(), size + "_count") == 1)
        writer.write(b"0\r\n\r\n")
        await reader.readuntil(b"0\r\n\r\n")
        page = network.metrics()
        assert value(page, size + "_count") == 1 and value(page, size + "_sum") == 5
        assert value(page, size + "_bucket", le="128.0") == 1
        writer.close()
        network.close()

    run(story)


@pytest.mark.acceptance("RTM-05", "RTM-07")
def test_frames_of_responses_are_the_backend_s_and_one_that_nobody_reads_on_is_an_error() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 300)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def story(ticking: Ticking) -> None:
        network = await web_network(ticking)
        await ask(network, "/200")
        page = network.metrics()
        assert value(page, BACKEND + "response_frame_size_bytes_count") == 1
        assert value(page, BACKEND + "response_frame_size_bytes_sum") == 2
        assert value(page, ROUTE + "request_frame_size_bytes_count") == 0
        server = await network.server(endless)
        network.fake.names[WEB].set(reset({server: EndpointMeta()}))
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")
        await reader.readuntil(b"x" * 300)
        break_off(writer)
        families = (ROUTE + "request_statuses_total", BACKEND + "response_statuses_total")
        await until(
            lambda: all(value(network.metrics(), one, error="UNKNOWN", http_status="200") == 1 for one in families)
        )
        assert value(network.metrics(), BACKEND + "response_frame_size_bytes_sum") == 302
        network.close()

    run(story)


def test_of_a_client_that_left_before_its_answer_nothing_ends() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def story(ticking: Ticking) -> None:
        network = await web_network(ticking)
        network.fake.names[WEB].set(reset({await network.server(silent): EndpointMeta()}))
        _, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")
        await until(lambda: value(network.metrics(), BACKEND + "requests_total") == 1)
        break_off(writer)
        await until(lambda: not network.outbound.runtime.in_flight.count)
        page = network.metrics()
        assert not list(samples(page, ROUTE + "request_statuses_total"))
        assert value(page, ROUTE + "request_duration_seconds_count") == 0
        network.close()

    run(story)


def test_an_upgrade_is_over_as_a_response_when_it_begins() -> None:
    async def upgraded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        writer.write(await reader.readexactly(5))
        await reader.read()
        writer.close()

    async def story(ticking: Ticking) -> None:
        network = await web_network(ticking)
        network.fake.names[WEB].set(reset({await network.server(upgraded): EndpointMeta()}))
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")

        def statuses() -> list[dict[str, float]]:
            families = (ROUTE + "request_statuses_total", BACKEND + "response_statuses_total")
            return [by_label(network.metrics(), one, "http_status", error="") for one in families]

        await until(lambda: statuses() == [{"101": 1}, {"101": 1}])
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        await until(lambda: not len(network.drain), "the tunnel is over")
        assert statuses() == [{"101": 1}, {"101": 1}]
        page = network.metrics()
        assert value(page, BACKEND + "response_frame_size_bytes_count") == 0, "a tunnel's bytes are no frames of a body"
        assert value(page, ROUTE + "request_frame_size_bytes_count") == 0
        network.close()

    run(story)


# ---- gRPC

CALLS: dict[str, Any] = {
    "/s/ok": ([(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0")], b""),
    "/s/missing": ([(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5")], b""),
    "/s/strange": ([(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "99")], b""),
    "/s/nothing": ([(":status", "200"), ("content-type", "application/grpc")], b""),
    "/s/cancel": 8,
    "/s/refuse": 7,
    "/s/calm": 11,
    "/s/reset": 2,
}


async def call(network: Network, path: str) -> Http2Client:
    reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
    client = Http2Client()
    more = [("content-type", "application/grpc"), ("te", "trailers")]
    answered = client.answers[client.get(path, *more, method="POST", authority="web")]
    while not answered.is_over:
        writer.write(client.take())
        client.feed(await asyncio.wait_for(reader.read(65536), 10))
    writer.close()
    return client


@pytest.mark.acceptance("RTM-06")
def test_a_grpc_route_counts_by_grpc_s_status() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        rule = ClientRule((), (), Distribution(FIRST_AVAILABLE, (RouteBackend(balance_backend()),)))
        routes = (ClientRoute(default_meta("grpc"), (), (rule,), is_grpc=True),)
        network.fake.policies[DST] = Watch(ClientPolicy(SERVICE, GRPC, (), routes))

        def answer(fields: list[tuple[str, str]]) -> Any:
            return CALLS[dict(fields)[":path"]]

        network.fake.names[WEB] = Watch(reset({await network.server(http2_app(answer)): EndpointMeta()}))
        network.start()
        for path in CALLS:
            await call(network, path)
        page = network.metrics()
        for family in (GRPC_ROUTE + "request_statuses_total", GRPC_ROUTE + "backend_response_statuses_total"):
            assert by_label(page, family, "grpc_status", error="") == {"OK": 1, "NOT_FOUND": 1, "UNKNOWN": 2}
            errors = {"CANCEL": 1, "REFUSED": 1, "ENHANCE_YOUR_CALM": 1, "RESET": 1}
            assert {
                word: count for word, count in by_label(page, family, "error", grpc_status="UNKNOWN").items() if word
            } == errors
        (ok,) = samples(page, GRPC_ROUTE + "request_statuses_total", grpc_status="OK")
        assert list(ok.labels)[-3:] == ["hostname", "grpc_status", "error"]
        assert value(page, GRPC_ROUTE + "backend_requests_total") == len(CALLS)
        assert not list(samples(page, ROUTE + "request_statuses_total"))
        network.close()

    run(story)


def balance_backend() -> Any:
    (one,) = balance_policy().http1_routes[0].rules[0].distribution.backends
    return one.backend
