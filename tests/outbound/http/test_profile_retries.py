"""Retries that a ServiceProfile's budget permits, over both versions of HTTP, from a client to the servers that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core.failure.reason import Reason
from proxy.core.watch import Watch
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2, RequestHead, ResponseHead
from proxy.http.headers import field
from proxy.metrics import Registry
from proxy.outbound.http.profile.budget import SharedBudget
from proxy.outbound.http.profile.retries import ProfileRetries
from proxy.outbound.http.retry.policy import PASS, RETRY
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.profiles.classify import ClassifyingRoute
from proxy.policy.profiles.profile import ProfileRoute, ResponseClasses, RetryBudget
from tests.kit.http1 import Message, http1_app, ok
from tests.kit.http2 import Asked, Http2Client, Http2Server
from tests.kit.network import http_server
from tests.kit.sockets import REFUSING
from tests.kit.streams import FakeServer
from tests.outbound.http.test_profile import DST, NAME, Profiled, path, route, story

H1, H2 = "h1", "h2"
both = pytest.mark.parametrize("version", [H1, H2])
BUDGET = RetryBudget(1.0, 0.1, 1)
"""One retry, and one more for each ten requests that were not retried."""
FAILURES = frozenset(range(500, 601))
NO_BUDGET = 'skipped="no_budget"'


class Alternating:
    """An app that answers 533 to every second request, beginning with the first."""

    def __init__(self, network: Profiled, version: str, first_body: bytes = b"failed") -> None:
        self.requests: list[bytes] = []
        """The bodies of the requests."""
        self.network = network
        self.version = version
        self._first_body = first_body

    async def start(self) -> Alternating:
        if self.version == H1:
            where = await self.network.server(http1_app(self._answer))
        else:
            where = await self.network.server(self._serve_http2)
        self.network.fake.names[NAME] = Watch(reset({where: EndpointMeta()}))
        return self

    def _next(self, body: bytes) -> tuple[int, bytes]:
        self.requests.append(body)
        return (533, self._first_body) if len(self.requests) % 2 else (200, b"retried")

    def _answer(self, request: Message) -> bytes:
        status, body = self._next(request.body)
        return ok(body).replace(b" 200 OK", b" %d Whatever" % status, 1)

    async def _serve_http2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve_http2(reader, writer, lambda body: Answer(*self._next(body)))


class Answer:
    def __init__(
        self,
        status: int,
        body: bytes = b"",
        fields: Sequence[tuple[str, str]] = (),
        trailers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.status, self.body, self.fields, self.trailers = status, body, fields, trailers
        self.pieces = [body] if body else []


async def serve_http2(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Callable[[bytes], Answer]
) -> None:
    """A server by another implementation of HTTP/2."""

    def respond(server: Http2Server, asked: Asked) -> None:
        given = answer(asked.body)
        server.respond(asked.stream_id, [(":status", str(given.status)), *given.fields], given.body, given.trailers)

    await Http2Server(on_whole=respond).serve(reader, writer)


class Got:
    def __init__(self, status: int, body: bytes, trailers: dict[str, str], headers: dict[str, str]) -> None:
        self.status, self.body, self.trailers, self.headers = status, body, trailers, headers


async def ask(
    network: Profiled, version: str, target: str = "/0.5", method: str = "GET", body: Sequence[bytes] = (), **more: Any
) -> Got:
    """One request on a connection of its own; `body` is given in its pieces, and has no length if `more["streams"]`."""
    whole, streams = b"".join(body), more.get("streams", False)
    reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
    try:
        if version == H1:
            head = f"{method} {target} HTTP/1.1\r\nHost: profiles\r\nConnection: close\r\n"
            if streams:
                head += "Transfer-Encoding: chunked\r\n"
            elif body:
                head += f"Content-Length: {len(whole)}\r\n"
            writer.write(head.encode() + b"\r\n")
            for one in body:
                writer.write(b"%x\r\n%b\r\n" % (len(one), one) if streams else one)
            writer.write(b"0\r\n\r\n" if streams else b"")
            answer = await asyncio.wait_for(reader.read(), 20)
            first, _, rest = answer.partition(b"\r\n\r\n")
            return Got(int(first.split(b" ")[1]), rest, {}, {})
        client = Http2Client()
        fields = [*more.get("fields", []), *([("content-length", str(len(whole)))] if body and not streams else [])]
        pseudo = [(":method", method), (":scheme", "http"), (":authority", "profiles"), (":path", target)]
        stream = client.ask([*pseudo, *fields], b"", not body)
        answered = client.answers[stream]
        while not answered.is_over:
            while whole and (size := min(client.h2.local_flow_control_window(stream), 16384)):
                client.h2.send_data(stream, whole[:size], end_stream=len(whole) <= size)
                whole = whole[size:]
            writer.write(client.take())
            client.feed(await asyncio.wait_for(reader.read(65536), 20))
        assert answered.reset is None
        headers = dict(answered.headers)
        return Got(int(headers[":status"]), answered.body, dict(answered.trailers or ()), headers)
    finally:
        writer.close()


def retryable(**given: Any) -> ProfileRoute:
    return route("again", is_retryable=True, **given)


def classes(successes: frozenset[int] = frozenset()) -> dict[str, Any]:
    return {"classes": ResponseClasses(successes, FAILURES - successes), "has_classes": True}


def played(
    version: str, given: ProfileRoute, play: Callable[[Profiled, Alternating], Any], budget: RetryBudget | None = BUDGET
) -> None:
    async def whole(network: Profiled) -> None:
        app = await Alternating(network, version).start()
        network.says(given, budget=budget)
        network.start()
        await play(network, app)

    story(whole)


@pytest.mark.acceptance("PROF-01")
@both
def test_what_is_a_failure_by_default_is_retried(version: str) -> None:
    async def play(network: Profiled, app: Alternating) -> None:
        asked = await ask(network, version)
        assert (asked.status, asked.body) == (200, b"retried")
        assert len(app.requests) == 2
        assert network.line("route_request_total") == "1" and network.line("route_actual_request_total") == "2"
        assert network.line("route_response_total", 'status_code="200"', 'classification="success"') == "1"
        assert network.line("route_actual_response_total", 'status_code="200"') == "1"
        assert network.line("route_actual_response_total", 'status_code="533"', 'classification="failure"') == "1"
        assert len(network.lines("route_response_total")) == 1
        start = f'route_retryable_total{{direction="outbound",dst="{NAME}",rt_route="again"'
        assert network.lines("route_retryable_total") == [start + "} 1", start + f",{NO_BUDGET}}} 0"]
        page = network.metrics()
        assert (
            page.index("\nroute_response_total") < page.index("\nroute_retryable_total") < page.index("\nroute_actual_")
        )

    played(version, retryable(), play)


@pytest.mark.acceptance("PROF-02")
@both
def test_an_empty_budget_leaves_the_failure_to_the_client_until_it_is_paid_for(version: str) -> None:
    async def play(network: Profiled, app: Alternating) -> None:
        assert (await ask(network, version)).body == b"retried"
        assert (await ask(network, version)).status == 533
        assert network.line("route_retryable_total", 'direction="outbound"', f'dst="{NAME}"', NO_BUDGET) == "1"
        assert (await ask(network, version)).status == 200
        network.ticking.pass_time(3.0)
        assert (await ask(network, version)).body == b"retried", "what was taken is forgotten after the ttl"

    played(version, retryable(**classes()), play)


@pytest.mark.acceptance("PROF-03", "PROF-04")
@both
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_small_body_is_sent_again(version: str, method: str) -> None:
    async def play(network: Profiled, app: Alternating) -> None:
        assert (await ask(network, version, method=method, body=[b"req has a body"])).status == 200
        assert app.requests == [b"req has a body"] * 2

    played(version, retryable(), play)


@pytest.mark.acceptance("PROF-05")
@both
def test_a_small_body_without_a_length_is_sent_again(version: str) -> None:
    async def play(network: Profiled, app: Alternating) -> None:
        asked = await ask(network, version, method="POST", body=[b"hello", b"world"], streams=True)
        assert asked.status == 200 and app.requests == [b"helloworld"] * 2

    played(version, retryable(), play)


@pytest.mark.acceptance("PROF-06")
@both
def test_a_request_of_another_route_is_not_retried(version: str) -> None:
    async def play(network: Profiled, app: Alternating) -> None:
        assert (await ask(network, version)).status == 533

    played(version, retryable(condition=path("^/wont/match/anything$")), play)


@pytest.mark.acceptance("PROF-07")
@both
def test_what_the_route_calls_a_success_is_not_retried(version: str) -> None:
    async def play(network: Profiled, app: Alternating) -> None:
        assert (await ask(network, version)).status == 533
        assert network.line("route_response_total", 'classification="success"') == "1"

    played(version, retryable(**classes(frozenset((533, 534)))), play)


@pytest.mark.acceptance("PROF-08")
@both
def test_a_body_over_the_limit_is_sent_once(version: str) -> None:
    async def play(network: Profiled, app: Alternating) -> None:
        assert (await ask(network, version, method="POST", body=[b"1" * 65537])).status == 533
        assert [len(one) for one in app.requests] == [65537]
        assert network.outbound.runtime.retries.room.held_bytes == 0

    played(version, retryable(), play)


@both
def test_a_body_of_just_the_limit_is_sent_again(version: str) -> None:
    async def play(network: Profiled, app: Alternating) -> None:
        assert (await ask(network, version, method="POST", body=[b"1" * 65536])).status == 200
        assert [len(one) for one in app.requests] == [65536, 65536]

    played(version, retryable(), play)


@pytest.mark.acceptance("PROF-09")
@both
def test_a_body_that_turns_out_to_be_over_the_limit_is_sent_once_and_whole(version: str) -> None:
    async def play(network: Profiled, app: Alternating) -> None:
        asked = await ask(network, version, method="POST", body=[b"1" * 32768] * 3, streams=True)
        assert asked.status == 533 and [len(one) for one in app.requests] == [3 * 32768]
        assert network.outbound.runtime.retries.room.held_bytes == 0

    played(version, retryable(), play)


@both
def test_a_failure_that_cannot_be_sent_again_pays_for_others(version: str) -> None:
    """As every request that ends un-retried; one that found the budget empty does not."""

    async def play(network: Profiled, app: Alternating) -> None:
        for _ in range(2):
            asked = await ask(network, version, method="POST", body=[b"1" * 32768] * 3, streams=True)
            assert asked.status in (533, 200)
            await ask(network, version, target="/0.5")
        budget = network.outbound.discovery.get(DST).retry_budget
        assert budget is not None and budget.withdraw(), "two failures and two successes have paid for one retry"

    played(version, retryable(**classes()), play, RetryBudget(10.0, 0.3, 0))


@pytest.mark.acceptance("PROF-10")
@both
def test_without_a_budget_nothing_is_retried(version: str) -> None:
    """Nothing is retried without a budget, or with one that the conversion left out (PROF-11 to 13,
    tests/control/convert/test_profile.py).
    """

    async def play(network: Profiled, app: Alternating) -> None:
        assert (await ask(network, version)).status == 533
        assert not network.lines("route_retryable_total")

    played(version, retryable(), play, None)


@pytest.mark.acceptance("PROF-15")
def test_a_response_that_was_dropped_keeps_no_window() -> None:
    async def whole(network: Profiled) -> None:
        app = await Alternating(network, H2, b"x" * 102_400).start()
        network.says(retryable(), budget=RetryBudget(1.0, 1.0, 1000))
        network.start()
        for _ in range(30):  # 3 MB, where the connection's window is 1 MB
            assert (await ask(network, H2)).body == b"retried"
        assert len(app.requests) == 60

    story(whole)


GRPC = [("content-type", "application/grpc"), ("te", "trailers")]


def judged(**classes: frozenset[int]) -> ProfileRetries:
    """The judgement of a route with these classes, or without any."""
    route = ClassifyingRoute("", ResponseClasses(**classes), bool(classes))
    budget = SharedBudget(BUDGET, lambda: 0.0)
    return ProfileRetries(route, budget, Registry(lambda: 0.0), ())


def test_what_is_no_failure_is_not_retried() -> None:
    call = RequestHead(b"POST", b"http", b"a", b"/", [field(b"content-type", b"application/grpc")], 0)
    call.version = HTTP_2
    for code, verdict in ((b"0", PASS), (b"5", PASS), (b"14", RETRY)):
        head = ResponseHead(200, [field(b"grpc-status", code)], 0)
        assert judged().on_head(call, head, True) == verdict
        assert judged(failures=frozenset((503,))).on_head(call, head, True) == verdict


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        (Reason.INTERNAL, PASS),
        (Reason.SHUTDOWN, PASS),
        (Reason.CONNECT_FAILED, RETRY),
        (Reason.CONNECTION_RESET, RETRY),
    ],
)
def test_failures_of_ours_are_not_retried_and_those_of_endpoints_are(reason: Reason, verdict: int) -> None:
    exchange = Exchange(FakeServer(), RequestHead(b"GET", b"http", b"a", b"/", [], 0), 0.0)
    assert judged().on_failure(exchange, reason) == verdict


def grpc_story(answers: list[Answer], check: Callable[[Profiled, Got, list[bytes]], None]) -> None:
    async def whole(network: Profiled) -> None:
        seen: list[bytes] = []

        def answer(body: bytes) -> Answer:
            seen.append(body)
            return answers[len(seen) - 1]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await serve_http2(reader, writer, answer)

        where = await network.server(serve)
        network.fake.names[NAME] = Watch(reset({where: EndpointMeta()}))
        network.says(retryable(), budget=BUDGET)
        network.start()
        check(network, await ask(network, H2, "/pkg.Service/Method", "POST", [b"hello"], fields=GRPC), seen)

    story(whole)


@pytest.mark.acceptance("PROF-16")
def test_a_grpc_failure_in_the_head_is_retried() -> None:
    def check(network: Profiled, asked: Got, seen: list[bytes]) -> None:
        assert asked.headers["grpc-status"] == "0" and len(seen) == 2

    head = [[*GRPC[:1], ("grpc-status", code)] for code in ("14", "0")]
    grpc_story([Answer(200, fields=head[0]), Answer(200, fields=head[1])], check)


@pytest.mark.acceptance("PROF-17")
def test_a_grpc_failure_in_the_trailers_is_retried() -> None:
    def check(network: Profiled, asked: Got, seen: list[bytes]) -> None:
        assert asked.trailers == {"grpc-status": "0"} and seen == [b"hello", b"hello"]
        of = [line for line in network.lines("route_actual_response_total") if 'grpc_status="14"' in line]
        assert len(of) == 1 and of[0].endswith(" 1"), "what the dropped response said is counted"
        assert network.line("route_response_total", 'grpc_status="0"', 'classification="success"') == "1"

    grpc_story([Answer(200, fields=GRPC[:1], trailers=[("grpc-status", code)]) for code in ("14", "0")], check)


@pytest.mark.acceptance("PROF-18")
def test_a_grpc_success_keeps_its_data_and_trailers() -> None:
    def check(network: Profiled, asked: Got, seen: list[bytes]) -> None:
        assert (asked.body, asked.trailers, len(seen)) == (b"hello world", {"grpc-status": "0"}, 1)

    grpc_story([Answer(200, b"hello world", GRPC[:1], [("grpc-status", "0")])], check)


@pytest.mark.acceptance("PROF-19")
def test_two_frames_and_trailers_stay_as_they_are() -> None:
    def check(network: Profiled, asked: Got, seen: list[bytes]) -> None:
        assert (asked.body, asked.trailers, len(seen)) == (b"x" * 20000, {"grpc-status": "14"}, 1)

    grpc_story([Answer(200, b"x" * 20000, GRPC[:1], [("grpc-status", "14")])], check)


# ---- beyond the checklist


def test_an_endpoint_that_refuses_counts_as_the_502_that_it_is_answered_with() -> None:
    async def whole(network: Profiled) -> None:
        there = await network.server(http_server("there"))
        network.fake.names[NAME] = Watch(reset({REFUSING: EndpointMeta(), there: EndpointMeta()}))
        network.says(retryable(), budget=RetryBudget(1.0, 1.0, 1000))
        network.start()
        for _ in range(10):
            assert (await ask(network, H1)).body == b"there"

    story(whole)


def test_simultaneous_failures_take_no_more_than_the_budget_has() -> None:
    async def whole(network: Profiled) -> None:
        asked: list[bytes] = []

        def answer(request: Message) -> bytes:
            asked.append(request.raw)
            return ok(b"no").replace(b" 200 OK", b" 500 No", 1)

        where = await network.server(http1_app(answer))
        network.fake.names[NAME] = Watch(reset({where: EndpointMeta()}))
        network.says(retryable(), budget=RetryBudget(10.0, 0.2, 2))
        network.start()
        answers = await asyncio.gather(*(ask(network, H1) for _ in range(100)))
        assert {one.status for one in answers} == {500}
        assert len(asked) == 100 + 20, "two a second for the ttl, since none of these requests paid in"
        assert network.line("route_retryable_total", NO_BUDGET) == "100"
        counted = [line for line in network.lines("route_retryable_total") if NO_BUDGET not in line]
        assert counted[0].endswith(" 120"), "each failure that was to be retried"

    story(whole)


def test_a_profile_that_changes_with_every_message_has_one_budget() -> None:
    async def whole(network: Profiled) -> None:
        app = await Alternating(network, H1).start()
        network.start()
        statuses = []
        for number in range(20):
            network.says(route(str(number), is_retryable=True), budget=RetryBudget(1.0, 0.0, 1))
            statuses.append((await ask(network, H1)).status)
            network.says()
            network.says(overrides=((NAME, number + 1),), budget=RetryBudget(1.0, 0.0, 1))
        assert statuses.count(200) == 10 and len(app.requests) == 21, "one of them was retried"
        network.says(retryable(), budget=RetryBudget(1.0, 0.0, 2))
        assert (await ask(network, H1)).status == 200, "other terms, another budget"

    story(whole)


def test_the_timeout_of_a_route_is_for_all_attempts_together() -> None:
    async def whole(network: Profiled) -> None:
        asked: list[bytes] = []
        late = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked.append(head)
                if len(asked) == 2:
                    late.set()
                    await reader.read()
                    break
                writer.write(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")
            writer.close()

        where = await network.server(serve)
        network.fake.names[NAME] = Watch(reset({where: EndpointMeta()}))
        network.says(retryable(timeout_s=0.5), budget=RetryBudget(1.0, 1.0, 1000))
        network.start()
        answer = asyncio.create_task(ask(network, H1))
        await asyncio.wait_for(late.wait(), 10)
        network.ticking.pass_time(1.0)
        assert (await answer).status == 504
        assert network.line("route_response_total", 'error="timeout"') == "1"
        assert network.line("route_actual_request_total") == "2"
        assert network.outbound.runtime.in_flight.count == 0

    story(whole)
