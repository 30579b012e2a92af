"""Discovery end to end, for clients of HTTP/2, of HTTP/1, and of HTTP/1 with absolute targets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest

from proxy.api import destination_pb2, services
from tests.acceptance.discovered import DST, HOST, Discovered, add, none, run_with_controller
from tests.control.controller import Controller
from tests.kit.http1 import Message, Serve, http1_app
from tests.kit.http1 import ok as ok1
from tests.kit.http2 import http2_app, ok
from tests.kit.network import ask, h2_request
from tests.kit.sockets import Ticking, until

BODIES = {"/": b"hello", "/bye": b"bye", "/recon": b"nect"}


def answer(request: Message) -> bytes:
    """The answer to a request, by its path."""
    return ok1(BODIES[request.target.decode().removeprefix(f"http://{HOST}")])


class Client:
    """`get` makes one request on a connection of its own and returns status and body."""

    def __init__(self, app: Serve, get: Callable[[Discovered, str], Coroutine[Any, Any, tuple[int, bytes]]]) -> None:
        self.app = app
        self.get = get


def http1(prefix: str) -> Client:
    async def get(network: Discovered, path: str) -> tuple[int, bytes]:
        said = await ask(network, network.target, f"GET {prefix}{path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        head, _, body = said.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body

    return Client(http1_app(answer), get)


def http2() -> Client:
    async def get(network: Discovered, path: str) -> tuple[int, bytes]:
        headers, body = await h2_request(network.redirect(network.target), "GET", HOST, path)
        return int(headers[":status"]), body

    return Client(http2_app(lambda fields: ok(BODIES[dict(fields)[":path"]])), get)


@pytest.fixture(params=["http2", "http1", "http1-absolute"])
def client(request: pytest.FixtureRequest) -> Client:
    return http2() if request.param == "http2" else http1(f"http://{HOST}" if "absolute" in request.param else "")


@pytest.mark.acceptance("DISC-01")
def test_an_address_is_resolved_by_the_name_that_policy_gives_it(client: Client) -> None:
    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller)
        server = await network.server(client.app)
        network.start()
        first = asyncio.create_task(client.get(network, "/"))
        await network.stream(1)
        network.endpoints.say(add(server))
        assert await first == (200, b"hello")
        assert await client.get(network, "/bye") == (200, b"bye")
        assert network.profiles == [str(DST)]
        assert [request.path for request in network.endpoints.requests] == [f"{HOST}:80"]
        network.close()

    run_with_controller(story)


@pytest.mark.acceptance("DISC-02")
def test_one_address_is_asked_for_once(client: Client) -> None:
    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller)
        server = await network.server(client.app)
        network.start()
        first = asyncio.create_task(client.get(network, "/"))
        await network.stream(1)
        network.endpoints.say(add(server))
        assert await first == (200, b"hello")
        assert await client.get(network, "/") == (200, b"hello")
        assert (network.endpoints.opened, len(network.profiles)) == (1, 1)
        network.close()

    run_with_controller(story)


@pytest.mark.acceptance("DISC-03")
def test_a_stream_that_ends_at_once_is_asked_for_again(client: Client) -> None:
    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller)
        server = await network.server(client.app)
        network.start()
        got = asyncio.create_task(client.get(network, "/recon"))
        await network.stream(1)
        network.endpoints.say(None)
        await network.stream(2)
        network.endpoints.say(add(server))
        assert await got == (200, b"nect")
        network.close()

    run_with_controller(story)


@pytest.mark.parametrize(
    "exists",
    [
        pytest.param(True, marks=pytest.mark.acceptance("DISC-08"), id="empty"),
        pytest.param(False, marks=pytest.mark.acceptance("DISC-09"), id="does-not-exist"),
    ],
)
def test_endpoints_outlive_a_stream_and_not_what_the_next_one_says(client: Client, exists: bool) -> None:
    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller)
        server = await network.server(client.app)
        network.start()
        first = asyncio.create_task(client.get(network, "/"))
        await network.stream(1)
        network.endpoints.say(add(server))
        assert await first == (200, b"hello")
        network.endpoints.say(None)
        await network.stream(2)
        assert await client.get(network, "/") == (200, b"hello"), "nobody has said otherwise yet"
        network.endpoints.say(none(exists))
        told_at = ticking.now
        status = 200
        while status == 200:
            assert ticking.now < told_at + 1.0
            status, _ = await client.get(network, "/")
        assert status == 504
        network.close()

    run_with_controller(story)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(none(True), marks=pytest.mark.acceptance("DISC-04"), id="empty"),
        pytest.param(none(False), marks=pytest.mark.acceptance("DISC-05"), id="does-not-exist"),
        pytest.param(None, marks=pytest.mark.acceptance("DISC-10"), id="nothing"),
    ],
)
def test_without_endpoints_requests_fail_fast(client: Client, said: destination_pb2.Update | None) -> None:
    """Without endpoints requests fail fast. They never go to the address that the client connected to, though
    something listens there.
    """

    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller)
        connections: list[asyncio.StreamWriter] = []
        network.target = await network.server(lambda _, writer: connections.append(writer))
        network.start()
        got = asyncio.create_task(client.get(network, "/"))
        await network.stream(1)
        if said is not None:
            network.endpoints.say(said)
        assert (await got)[0] == 504
        assert not connections
        network.close()

    run_with_controller(story)


@pytest.mark.parametrize(
    "networks",
    [
        pytest.param("10.0.0.0/8", marks=pytest.mark.acceptance("DISC-06"), id="outside-of-profile-networks"),
        pytest.param("127.0.0.0/8", marks=pytest.mark.acceptance("DISC-07"), id="refused-profile"),
    ],
)
def test_what_discovery_does_not_know_goes_where_it_was_going(client: Client, networks: str) -> None:
    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller, DESTINATION_PROFILE_NETWORKS=networks)
        profiles: list[str] = []

        def refused(request: destination_pb2.GetDestination, context: grpc.ServicerContext) -> None:
            profiles.append(request.path)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unresolvable")

        controller.on(services.GET_PROFILE, refused)
        controller.on(services.OUTBOUND_WATCH, lambda _, context: context.abort(grpc.StatusCode.NOT_FOUND, "nobody"))
        network.target = await network.server(client.app)
        network.start()
        assert await client.get(network, "/") == (200, b"hello")
        assert network.endpoints.opened == 0
        assert profiles == ([str(network.target)] if networks == "127.0.0.0/8" else [])
        network.close()

    run_with_controller(story)


@pytest.mark.acceptance("DISC-11")
def test_a_controller_that_comes_late(client: Client) -> None:
    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller)
        server = await network.server(client.app)

        def answers(request: Any, context: Any) -> Any:
            messages = network.endpoints(request, context)
            yield add(server)
            yield from messages

        controller.on(services.DESTINATION_GET, answers)
        network.start()
        began_at = ticking.now
        got = asyncio.create_task(client.get(network, "/"))
        await until(lambda: ticking.now > began_at + 0.5)
        assert not got.done()
        controller.start()
        assert await got == (200, b"hello")
        assert ticking.now < began_at + 1.5
        network.close()

    run_with_controller(story, is_started=False)


# ---- the balancer's queue, whole


@pytest.mark.acceptance("QUEUE-04")
def test_requests_go_on_while_no_stream_of_endpoints_is_open(client: Client) -> None:
    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller)
        server = await network.server(client.app)
        network.start()
        first = asyncio.create_task(client.get(network, "/"))
        await network.stream(1)
        network.endpoints.say(add(server))
        assert await first == (200, b"hello")
        controller.stop()
        await until(lambda: network.endpoints.closed == 1)
        assert [await client.get(network, "/bye") for _ in range(3)] == [(200, b"bye")] * 3
        network.close()

    run_with_controller(story)


@pytest.mark.acceptance("QUEUE-05")
def test_a_refused_question_fails_who_waits_and_who_comes_later(client: Client) -> None:
    async def story(ticking: Ticking, controller: Controller) -> None:
        network = Discovered(ticking, controller)
        network.start()
        waits = asyncio.create_task(client.get(network, "/"))
        await network.stream(1)
        network.endpoints.say(grpc.StatusCode.INVALID_ARGUMENT)
        assert (await waits)[0] == 500
        began_at = ticking.now
        assert (await client.get(network, "/"))[0] == 500
        assert ticking.now < began_at + 0.2, "at once: it does not wait for failfast"
        assert network.endpoints.opened == 1, "it is not asked again"
        network.close()

    run_with_controller(story)
