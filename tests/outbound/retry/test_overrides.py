"""What a request's own l5d-* fields change about its retries and timeouts, and where they are ignored."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.core.watch import Watch
from proxy.http.headers import field
from proxy.outbound.http.retry.overrides import codes_of, duration_of, overridden, statuses_of
from proxy.policy.client import GRPC, HTTP_1, ClientPolicy, Retry, Timeouts
from proxy.policy.endpoint import EndpointMeta
from tests.kit.http1 import Message, http1_app, ok
from tests.kit.network import Network, balance_policy
from tests.kit.sockets import Ticking, run, until
from tests.outbound.retry.link import RetryLink, rule

WEB = "web.ns.svc.cluster.local:80"
DST = Addr("10.43.0.7", 80)
NONE = Timeouts()


def asked(retry: Retry | None = None, timeouts: Timeouts = NONE, **said: str) -> Any:
    fields = tuple(field(b"l5d-" + name.replace("_", "-").encode(), value.encode()) for name, value in said.items())
    return overridden(fields, retry, timeouts)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("100ms", 0.1), (" 2s ", 2.0), ("3m", 180.0), ("1h", 3600.0), ("1d", 86400.0), ("0", 0.0), ("0s", 0.0),
        ("7", None), ("", None), ("s", None), ("1.5s", None), ("-1s", None), ("1 s", None), ("1sm", None), ("1us", None),
        ("9999999999999999s", None),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_of(text.encode()) == seconds and duration_of(None) is None


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("5xx", ((500, 599),)),
        ("5XX,Gateway-Error,404", ((500, 599), (502, 504), (404, 404))),
        ("400-499,503-500,600,99,abc,500-,-500, 500", ((400, 499),)),
        ("", ()),
    ],
)
def test_statuses(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert statuses_of(text.encode()) == ranges


def test_codes() -> None:
    assert codes_of(b"cancelled,Deadline-Exceeded,internal,resource-exhausted,unavailable") == {1, 4, 13, 8, 14}
    assert codes_of(b"ok,,unknown, internal") == frozenset()


def test_fields_override_what_the_route_says_one_by_one() -> None:
    usual = Retry(3, 1000, ((500, 500),), frozenset({13}), 1.0, Backoff(1, 2, 0))
    assert asked(usual) == (usual, NONE)
    assert asked(usual, retry_limit="5").retry == replace(usual, max_retries=5)
    assert asked(usual, retry_http="5xx").retry == replace(usual, statuses=((500, 599),))
    assert asked(usual, retry_grpc="unavailable").retry == replace(usual, grpc_codes=frozenset({14}))
    assert asked(usual, retry_timeout="10ms").retry == replace(usual, timeout_s=0.01)
    assert asked(usual, retry_limit="many", retry_timeout="soon").retry == usual


def test_a_route_without_retries_gets_one_with_the_usual_backoff_and_no_condition_but_those_that_are_named() -> None:
    assert asked(retry_limit="x").retry is None
    made = asked(retry_limit="2").retry
    assert made == Retry(2, 65536, (), frozenset(), None, Backoff(0.025, 0.25, 1.0))
    assert asked(retry_http="503").retry == replace(made, max_retries=1, statuses=((503, 503),))


def test_timeouts_of_a_request() -> None:
    usual = Timeouts(1.0, 2.0, 3.0)
    assert asked(None, usual).timeouts == usual
    assert asked(None, usual, timeout="5s").timeouts == Timeouts(5.0, 2.0, 3.0)
    assert asked(None, usual, request_timeout="6s", timeout="5s").timeouts == Timeouts(6.0, 2.0, 3.0)
    assert asked(None, usual, request_timeout="?", timeout="5s").timeouts == Timeouts(5.0, 2.0, 3.0)
    assert asked(None, usual, response_timeout="7s").timeouts == Timeouts(1.0, 7.0, 3.0)


def test_of_a_field_that_comes_twice_the_first_counts() -> None:
    fields = field(b"l5d-retry-limit", b"2"), field(b"l5d-retry-limit", b"7")
    made = overridden(fields, None, NONE).retry
    assert made is not None and made.max_retries == 2


# ---- through the outbound side


def policy(protocol: str, allows: bool, retry: Retry | None = None, timeouts: Timeouts = NONE) -> ClientPolicy:
    made = balance_policy(WEB, protocol)
    rule = replace(made.http1_routes[0].rules[0], allows_l5d_headers=allows, retry=retry, timeouts=timeouts)
    routes = (replace(made.http1_routes[0], rules=(rule,), is_grpc=protocol == GRPC),)
    return replace(made, http1_routes=routes, http2_routes=routes)


class App:
    """Answers in turn as its script states; for None it does not answer until the test is over."""

    def __init__(self, *script: bytes | None) -> None:
        self.script = list(script)
        self.requests: list[Message] = []
        self.is_over = asyncio.Event()

    async def answer(self, request: Message) -> bytes:
        self.requests.append(request)
        said = self.script[min(len(self.requests), len(self.script)) - 1]
        if said is None:
            await self.is_over.wait()
            return b""
        return said


def answer(status: int) -> bytes:
    return ok(b"%d" % status).replace(b"200 OK", b"%d Said" % status)


async def ask(network: Network, *fields: bytes, body: bytes = b"hello") -> bytes:
    reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
    lines = b"".join(one + b"\r\n" for one in fields)
    head = b"POST /a HTTP/1.1\r\nHost: web\r\nConnection: close\r\nContent-Length: %d\r\n%b\r\n" % (len(body), lines)
    writer.write(head + body)
    said = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return said


async def network_of(ticking: Ticking, app: App, made: ClientPolicy) -> Network:
    network = Network(ticking)
    server = await network.server(http1_app(app.answer))
    network.fake.policies[DST] = Watch(made)
    network.fake.names[WEB] = Watch(reset({server: EndpointMeta()}))
    network.start()
    network.closes(app.is_over.set)
    return network


WISHES = (b"l5d-retry-limit: 2", b"l5d-retry-http: 5xx", b"l5d-retry-timeout: 100ms")


@pytest.mark.acceptance("HDR-01")
def test_a_request_asks_for_retries_where_it_may() -> None:
    async def story(ticking: Ticking) -> None:
        app = App(
            answer(500), None, answer(204).replace(b"Content-Length: 3\r\n", b"").replace(b"\r\n\r\n204", b"\r\n\r\n")
        )
        network = await network_of(ticking, app, policy(HTTP_1, True))
        asking = asyncio.create_task(ask(network, *WISHES, b"l5d-other: kept"))
        while not asking.done():
            ticking.pass_time(0.05)
            await asyncio.sleep(0.01)
        assert (await asking).startswith(b"HTTP/1.1 204 ")
        assert len(app.requests) == 3
        for request in app.requests:
            assert request.body == b"hello" and request.one(b"l5d-other") == b"kept"
            assert not [name for name, _ in request.fields if name.lower().startswith(b"l5d-retry")]
        network.close()

    run(story)


@pytest.mark.acceptance("HDR-02")
def test_a_request_is_not_listened_to_where_it_may_not() -> None:
    async def story(ticking: Ticking) -> None:
        app = App(answer(500), answer(200))
        network = await network_of(ticking, app, policy(HTTP_1, False))
        assert (await ask(network, *WISHES, b"l5d-timeout: 0s")).startswith(b"HTTP/1.1 500 ")
        (request,) = app.requests
        assert request.one(b"l5d-retry-limit") == b"2" and request.one(b"l5d-timeout") == b"0s", (
            "they go on as they came"
        )
        network.close()

    run(story)


@pytest.mark.parametrize("name", [b"l5d-timeout", b"l5d-request-timeout", b"l5d-response-timeout"])
def test_a_request_says_how_long_it_may_take(name: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        app = App(None)
        network = await network_of(ticking, app, policy(HTTP_1, True, timeouts=Timeouts(9000.0, 9000.0)))
        asking = asyncio.create_task(ask(network, name + b": 300ms"))
        await until(lambda: len(app.requests) == 1)
        ticking.pass_time(0.5)
        said = await asking
        assert said.startswith(b"HTTP/1.1 504 ")
        what = b"response stream" if b"response" in name else b"request"
        context = b"logical service 10.43.0.7:80: route default.http: backend Service.ns.web:80: Service.ns.web:80: "
        text = b"l5d-proxy-error: %btimed out waiting for response headers: %b timeout: 300ms\r\n" % (context, what)
        assert text in said, said
        explained = said.partition(b"\r\n\r\n")[2]
        assert b"endpoint 127.0.0.1:" in explained, "which endpoint had it"
        assert b"The route's timeout decides" in explained
        assert app.requests[0].one(name) is None
        assert 'outbound_http_errors_total{error="response timeout"} 1' in network.metrics()
        network.close()

    run(story)


# ---- gRPC

OK = [(b"grpc-status", b"0")]
UNAVAILABLE = [(b"grpc-status", b"14")]
GRPC_WISHES = ((b"l5d-retry-grpc", b"unavailable"), (b"l5d-retry-limit", b"2"), (b"l5d-retry-timeout", b"100ms"))


@pytest.mark.acceptance("HDR-03")
def test_a_call_asks_for_retries_where_it_may() -> None:
    link = RetryLink("h2", "h2", rule(True))
    link.call(*GRPC_WISHES)
    link.answer(200, trailers=UNAVAILABLE)
    for _ in range(10):
        link.advance(0.05)
    assert len(link.asked) == 3
    assert not [name for name in link.far.message.fields if name.startswith(b"l5d-")]
    link.answer(200, b"\0\0\0\0\0", OK)
    assert link.near.message.is_whole("200", b"\0\0\0\0\0", OK)
    assert (link.count("requests"), link.count("successes")) == (2, 1)
    link.check()


@pytest.mark.acceptance("HDR-04")
def test_a_call_is_not_listened_to_where_it_may_not() -> None:
    link = RetryLink("h2", "h2", rule(False, Timeouts(request_s=5)))
    link.call(*GRPC_WISHES)
    link.answer(200, trailers=UNAVAILABLE)
    assert link.near.message.is_whole("200", b"", UNAVAILABLE) and len(link.asked) == 1
    assert link.far.message.fields[b"l5d-retry-grpc"] == b"unavailable"
    link.check()


def test_what_requests_ask_for_is_remembered_within_bounds() -> None:
    link = RetryLink("h2", "h1", rule(True))
    for number in range(100):
        link.near.request(b"GET", 0, (b"l5d-retry-limit", b"%d" % number))
        link.settle()
        link.answer(200)
    link.near.request(b"GET", 0, (b"l5d-retry-http", b"5xx" + b",500" * 100))
    link.settle()
    link.answer(503)
    link.advance(0.3)
    assert len(link.asked) == 102
    link.answer(200)
    assert link._stage is not None and len(link._stage._overrides) <= 32
    link.check()
