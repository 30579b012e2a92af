"""inbound_http_* and inbound_grpc_*: what is counted for requests by the route that permitted them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.core.address.addr import Addr
from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.head import UNKNOWN
from proxy.http.headers import field
from proxy.inbound.http.numbers import RouteNumbers
from proxy.metrics import Registry
from proxy.policy.defaults import LOCALHOST
from proxy.policy.meta import Meta, default_meta
from proxy.policy.server import DETECT, GRPC, ServerPolicy, ServerRoute, ServerRule
from tests.inbound.kit import OK, Http2Client, Workload
from tests.inbound.test_own_ports import AdminPort
from tests.kit import Clock
from tests.kit.http1 import Client
from tests.kit.http2 import http2_app
from tests.kit.page import by_label, samples, value
from tests.kit.sockets import Ticking, run, until
from tests.kit.streams import FakeClient, FakeServer, FakeStage, request_head, response_head

SERVER = Meta("policy.linkerd.io", "server", "web")
GET = b"GET / HTTP/1.1\r\nhost: app\r\n\r\n"
STATUSES = "inbound_http_statuses_total"


def policy(is_grpc: bool = False) -> ServerPolicy:
    route = ServerRoute(default_meta("default"), (), (LOCALHOST,), (ServerRule(()),), is_grpc)
    return ServerPolicy(SERVER, GRPC if is_grpc else DETECT, () if is_grpc else (LOCALHOST,), (route,))


def page_of(workload: Workload) -> str:
    return workload.registry.render().decode()


@pytest.mark.acceptance("MET-05")
def test_requests_are_counted_by_status_and_size() -> None:
    answers = [OK, OK, b"HTTP/1.1 307 Elsewhere\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n"]

    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy()) as workload:
            waiting = list(answers)
            workload.app.answer = lambda said: None if b"POST" in said and b"hello" not in said else waiting.pop(0)
            client = await workload.connect()
            assert await client.ask(GET) == OK
            client.write(b"POST / HTTP/1.1\r\nhost: app\r\ncontent-length: 5\r\n\r\n")
            await until(lambda: value(page_of(workload), "inbound_http_requests_total") == 2)
            assert value(page_of(workload), "inbound_http_request_frame_size_bytes_count") == 0
            assert await client.ask(b"hello") == OK
            await client.ask(GET)
            page = page_of(workload)
            assert by_label(page, STATUSES, "status") == {"200": 2, "307": 1}
            assert value(page, "inbound_http_request_frame_size_bytes_sum") == 5
            assert value(page, "inbound_http_response_frame_size_bytes_sum") == 4
            assert value(page, "inbound_http_response_frame_size_bytes_count") == 2
            assert value(page, "inbound_http_request_duration_seconds_count") == 3
            assert value(page, "inbound_http_response_duration_seconds_count") == 3
            (one,) = samples(page, STATUSES, status="307")
            assert list(one.labels.items()) == [
                ("parent_group", "policy.linkerd.io"),
                ("parent_kind", "server"),
                ("parent_name", "web"),
                ("parent_port", str(workload.app.port)),
                ("route_group", ""),
                ("route_kind", "default"),
                ("route_name", "default"),
                ("status", "307"),
            ]
            where = dict(list(one.labels.items())[:-1])
            for family in ("requests_total", "request_frame_size_bytes_count", "response_frame_size_bytes_count",
                           "request_duration_seconds_count", "response_duration_seconds_count"):  # fmt: skip
                (one,) = samples(page, f"inbound_http_{family}")
                assert one.labels == where, family
            client.close()

    run(story)


def test_what_no_route_permits_is_not_counted_here() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, ServerPolicy(SERVER, DETECT, (LOCALHOST,))) as workload:
            client = await workload.connect()
            assert (await client.ask(GET)).startswith(b"HTTP/1.1 404")
            assert not list(samples(page_of(workload), "inbound_http_requests_total"))
            client.close()

    run(story)


def test_connections_share_their_route_s_numbers() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy()) as workload:
            for _ in range(3):
                client = await workload.connect()
                assert await client.ask(GET) == OK
                client.close()
            (one,) = samples(page_of(workload), "inbound_http_requests_total")
            assert one.value == 3

    run(story)


def test_the_admin_port_s_requests_are_not_counted_by_route() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            admin = AdminPort(workload)
            client = Client(*await asyncio.open_connection(*admin.addr))
            assert (await client.ask(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert value(page_of(workload), "request_total", direction="inbound") == 1
            assert not list(samples(page_of(workload), "inbound_http_requests_total"))
            client.close()
            admin.close()

    run(story)


def test_an_app_that_cannot_be_reached_is_a_status() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy()) as workload:
            workload.app.stop()
            client = await workload.connect()
            assert (await client.ask(GET)).startswith(b"HTTP/1.1 502")
            assert by_label(page_of(workload), STATUSES, "status") == {"502": 1}
            client.close()

    run(story)


def test_an_app_that_resets_a_stream_has_given_no_status() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy()) as workload:
            server = await asyncio.start_server(http2_app(lambda fields: 2), "127.0.0.1", 0)
            workload.original = Addr("127.0.0.1", server.sockets[0].getsockname()[1])
            client = Http2Client(await workload.connect())
            assert (await client.get()).reset == 2
            await until(lambda: by_label(page_of(workload), STATUSES, "status") == {"": 1})
            client.close()
            server.close()

    run(story)


def test_a_grpc_policy_has_families_of_its_own() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(is_grpc=True)) as workload:
            client = Http2Client(await workload.connect_tls())
            assert (await client.get("/s/m", ("l5d-orig-proto", "HTTP/1.1"), method="POST")).status == "200"
            page = page_of(workload)
            assert value(page, "inbound_grpc_requests_total") == 1
            assert by_label(page, "inbound_grpc_statuses_total", "status") == {"": 1}
            assert not list(samples(page, STATUSES))
            client.close()

    run(story)


# ---- by exchanges alone


class Route:
    """The numbers of one route, and exchanges that take it."""

    def __init__(self, is_grpc: bool) -> None:
        self.clock = Clock()
        self.registry = Registry(self.clock)
        route = ServerRoute(default_meta("default"), (), (), (), is_grpc)
        self.numbers: Any = RouteNumbers(self.registry, SERVER, 8080, route)
        self.of = "inbound_grpc" if is_grpc else "inbound_http"

    def exchange(self, has_body: bool = False) -> Exchange:
        exchange = Exchange(FakeServer(), request_head(b"POST", UNKNOWN), self.clock.now, self.clock)
        self.numbers.begin(exchange)
        exchange.request_head(FakeStage(lambda one: one.attach(FakeClient())), not has_body)
        return exchange

    def statuses(self) -> dict[str, float]:
        return by_label(self.registry.render().decode(), f"{self.of}_statuses_total", "status")


@pytest.mark.acceptance("MET-05")
@pytest.mark.parametrize(
    ("is_grpc", "case", "status"),
    [
        (False, "an error", ""),
        (True, "an error", ""),
        (False, "a broken body", "200"),
        (True, "trailers", "0"),
        (False, "trailers", "200"),
        (True, "dropped", ""),
        (False, "dropped", "200"),
        (True, "head", "5"),
    ],
)
def test_how_a_response_ends_decides_its_status(is_grpc: bool, case: str, status: str) -> None:
    route = Route(is_grpc)
    exchange = route.exchange()
    if case == "an error":
        exchange.failure = "UNKNOWN"
        exchange.request_reset(Reason.PEER_RESET)
    else:
        head = response_head(200, UNKNOWN)
        if case == "head":
            head.fields = [field(b"grpc-status", b"5")]
        exchange.response_head(head, case == "head")
    if case == "a broken body":
        exchange.response_data(b"x", False)
        exchange.response_reset(Reason.PROTOCOL_ERROR)
    elif case == "trailers":
        exchange.response_trailers([field(b"grpc-status", b"0")])
    elif case == "dropped":
        exchange.request_reset(Reason.PEER_CLOSED)
    assert route.statuses() == {status: 1}


def test_durations_begin_with_the_request_and_with_its_end() -> None:
    route = Route(False)
    exchange = route.exchange(has_body=True)
    route.clock.now += 0.2
    exchange.request_data(b"x", True)
    route.clock.now += 0.3
    exchange.response_head(response_head(200, 0), True)
    page = route.registry.render().decode()
    assert value(page, "inbound_http_request_duration_seconds_sum") == pytest.approx(0.5)
    assert value(page, "inbound_http_response_duration_seconds_sum") == pytest.approx(0.3)


def test_a_response_that_ends_before_its_request_took_no_time() -> None:
    route = Route(False)
    exchange = route.exchange(has_body=True)
    route.clock.now += 0.2
    exchange.response_head(response_head(413, 0), True)
    page = route.registry.render().decode()
    assert value(page, "inbound_http_request_duration_seconds_sum") == pytest.approx(0.2)
    assert value(page, "inbound_http_response_duration_seconds_count") == 1
    assert value(page, "inbound_http_response_duration_seconds_sum") == 0


def test_of_a_client_that_left_before_its_answer_nothing_ends() -> None:
    route = Route(False)
    route.exchange().request_reset(Reason.PEER_CLOSED)
    page = route.registry.render().decode()
    assert value(page, "inbound_http_requests_total") == 1
    assert route.statuses() == {} and value(page, "inbound_http_request_duration_seconds_count") == 0
