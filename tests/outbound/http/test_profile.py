"""ServiceProfiles through the outbound proxy: which route and which target a request takes, its timeout, and what is
counted.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from struct import pack
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core.address.addr import Addr
from proxy.core.watch import Absent, Watch
from proxy.http.headers import field
from proxy.outbound.backend.split import service_meta
from proxy.outbound.http.duration import duration_text
from proxy.policy.client import OPAQUE, ClientPolicy
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta, default_meta
from proxy.policy.profiles.condition import AllOf, MethodIs, PathIs
from proxy.policy.profiles.profile import Profile, ProfileRoute, ResponseClasses
from proxy.policy.routes.pattern import Pattern
from tests.kit.http1 import Message, Serve, http1_app, ok
from tests.kit.network import Answering, Network, ask, balance_policy, h2_request, h2_server, http_server
from tests.kit.sockets import REFUSING, Ticking, run, until

DST = Addr("10.43.0.7", 80)
NAME = "profiles.test.svc.cluster.local:80"
A, B = "leaf-a.test.svc.cluster.local:80", "leaf-b.test.svc.cluster.local:80"
GET = b"GET /a HTTP/1.1\r\nHost: profiles\r\n\r\n"
EVERYTHING = AllOf(())


def path(expression: str) -> PathIs:
    return PathIs(Pattern(expression))


def route(name: str = "all", condition: Any = EVERYTHING, **given: Any) -> ProfileRoute:
    return ProfileRoute(condition, (("route", name),) if name else (), **given)


class Profiled(Network):
    """A service whose profile the test sets: its apex and two leaves."""

    def __init__(self, ticking: Ticking, **changes: str | None) -> None:
        super().__init__(ticking, DESTINATION_PROFILE_NETWORKS="10.0.0.0/8", **changes)
        self.profile: Watch[Profile | Absent | None] = Watch(Profile(NAME))
        self.policy: Watch[ClientPolicy | Absent | None] = Watch(balance_policy(NAME, meta=service_meta(NAME)))
        self.fake.profiles[str(DST)] = self.profile
        self.fake.policies[DST] = self.policy

    def says(self, *routes: ProfileRoute, overrides: tuple[tuple[str, int], ...] = (), **given: Any) -> None:
        self.profile.set(Profile(NAME, routes=routes, overrides=overrides, **given))

    async def serve(self, name: str = NAME, serve: Serve | None = None) -> list[bytes]:
        """Start one endpoint of this name, which answers with the name unless another answer is given. Returns the
        requests that it gets.
        """
        seen: list[bytes] = []
        where = await self.server(serve or http_server(name, seen))
        self.fake.names[name] = Watch(reset({where: EndpointMeta()}))
        return seen

    async def client(self) -> Client:
        """A client connection that is kept until the test is over."""
        reader, writer = await asyncio.open_connection(sock=self.redirect(DST))
        self.closes(writer.close)
        return Client(reader, writer)

    async def get(self) -> bytes:
        """The answer to a GET on a connection of its own."""
        return await ask(self, DST, GET)

    async def get_after(self, seconds: float) -> bytes:
        """The same with an answer that comes this long after the request was routed."""
        routed = self.routed
        asked = asyncio.create_task(self.get())
        await until(lambda: self.routed > routed)
        self.ticking.pass_time(seconds)
        return await asked

    @property
    def routed(self) -> int:
        """How many requests took a route of the profile."""
        return sum(int(line.rpartition(" ")[2]) for line in self.lines("route_request_total"))

    async def bytes(self) -> bytes:
        """What a client of an opaque connection receives."""
        reader, writer = await asyncio.open_connection(sock=self.redirect(DST))
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return answer

    def line(self, family: str, *needles: str) -> str:
        """The value, as it is printed, of the only sample of this family with these labels."""
        (found,) = [
            line
            for line in self.metrics().splitlines()
            if line.startswith(family + "{") and all(one in line for one in needles)
        ]
        return found.rpartition(" ")[2]

    def lines(self, family: str) -> list[str]:
        return [line for line in self.metrics().splitlines() if line.startswith(family + "{")]


def saying(text: bytes) -> Serve:
    """A server that sends this text first."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        writer.close()

    return serve


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, target: str = "/a", method: str = "GET") -> tuple[int, bytes]:
        """Status and body."""
        self._writer.write(f"{method} {target} HTTP/1.1\r\nHost: profiles\r\n\r\n".encode())
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 10)
        length = int(
            next(one for one in head.lower().split(b"\r\n") if one.startswith(b"content-length")).split(b":")[1]
        )
        return int(head.split(b" ")[1]), await self._reader.readexactly(length)


def story(play: Callable[[Profiled], Any], **changes: str | None) -> None:
    async def played(ticking: Ticking) -> None:
        network = Profiled(ticking, **changes)
        try:
            await play(network)
        finally:
            network.close()

    run(played)


# ---- the split


@pytest.mark.acceptance("OVR-01")
def test_one_override_takes_everything() -> None:
    async def play(network: Profiled) -> None:
        for name in (NAME, A):
            await network.serve(name)
        network.says(overrides=((A, 10000),))
        network.start()
        client = await network.client()
        assert {await client.ask() for _ in range(100)} == {(200, A.encode())}

    story(play)


@pytest.mark.acceptance("OVR-02", "OVR-03", "OVR-04", "OVR-05")
@pytest.mark.parametrize("last", ["weights of 0", "no overrides"])
def test_weights_change_under_a_client_that_stays(last: str) -> None:
    async def play(network: Profiled) -> None:
        for name in (NAME, A, B):
            await network.serve(name)
        network.says(overrides=((A, 5000), (B, 5000)))
        network.start()
        client = await network.client()

        async def hundred() -> Counter[bytes]:
            return Counter([(await client.ask())[1] for _ in range(100)])

        both = await hundred()
        assert set(both) == {A.encode(), B.encode()} and min(both.values()) > 20
        network.says(overrides=((B, 5000),))  # as converted: a weight of 0 is left out
        assert await hundred() == {B.encode(): 100}
        network.says(route() if last == "weights of 0" else route("other"))
        assert await hundred() == {NAME.encode(): 100}, "the profile routes still, without a target of its own"
        network.says()
        assert await hundred() == {NAME.encode(): 100}, "the policy routes again"
        network.says(overrides=((A, 1),))
        assert await hundred() == {A.encode(): 100}, "and the profile, without a new connection"
        asked = Counter(what for kind, what in network.fake.asked if kind == "endpoints")
        assert asked[NAME] <= 2 and asked[B] == 1

    story(play)


def test_a_target_without_endpoints_leaves_its_share_to_the_others_once_it_has_failed_fast() -> None:
    async def play(network: Profiled) -> None:
        await network.serve(A)
        network.fake.names[B] = Watch(reset({}))
        network.says(overrides=((A, 1), (B, 1_000_000)))
        network.start()
        first = await network.get_after(0.5)
        assert first.startswith(b"HTTP/1.1 504 ")
        assert f"logical service {NAME}: Service.test.leaf-b:80: service in fail-fast".encode() in first
        assert {(await network.get())[-len(A) :] for _ in range(20)} == {A.encode()}
        network.says(overrides=((B, 1),))
        shed = await network.get()
        assert shed.startswith(b"HTTP/1.1 503 ")
        assert f"logical service {NAME}: service unavailable".encode() in shed

    story(play)


def test_a_target_that_stays_keeps_its_connections() -> None:
    async def play(network: Profiled) -> None:
        for name in (NAME, A, B):
            await network.serve(name)
        network.start()
        client = await network.client()
        for number in range(10):
            network.says(route(str(number)), overrides=((A, number + 1), (B, 1)))
            assert (await client.ask())[1] in (A.encode(), B.encode())
        asked = [what for kind, what in network.fake.asked if kind == "endpoints"]
        assert asked == [A, B]
        network.says(route("x"))
        before = len(network.fake.asked)
        for number in range(10):
            network.says(route(str(number)))
            assert (await client.ask())[1] == NAME.encode()
            network.says()
            assert (await client.ask())[1] == NAME.encode()
        assert len(network.fake.asked) == before, "the same backend, whoever routes to it"

    story(play)


def test_a_request_that_waits_goes_on_when_the_profile_changes() -> None:
    async def play(network: Profiled) -> None:
        coming = network.fake.names[A] = Watch(reset({}))
        network.says(route(), overrides=((A, 1),))
        network.start()
        client = await network.client()
        asked = asyncio.create_task(client.ask())
        await until(lambda: network.lines("route_request_total"))
        network.says(route("other"), overrides=((A, 2),))
        where = await network.server(http_server("late"))
        coming.set(reset({where: EndpointMeta()}))
        assert await asked == (200, b"late")
        assert len(network.lines("route_response_total")) == 1
        assert network.line("route_response_total", 'rt_route="all"') == "1"

    story(play)


def test_services_and_other_names() -> None:
    assert service_meta("web.ns.svc.cluster.local:80") == Meta("core", "Service", "web", "ns", port=80)
    assert service_meta("web.ns.SVC:8080").port == 8080
    for other in ("web.ns:80", "example.com:443", "a.b.c.d:80"):
        assert service_meta(other) == default_meta("unknown")


def test_opaque_connections_are_split_too() -> None:
    async def play(network: Profiled) -> None:
        for name in (A, B, NAME):
            await network.serve(name, saying(name.encode()))
        network.policy.set(balance_policy(NAME, OPAQUE, service_meta(NAME)))
        network.says(overrides=((A, 1), (B, 1)))
        network.start()
        assert {await network.bytes() for _ in range(40)} == {A.encode(), B.encode()}
        of_profile = 'parent_name="profiles"', 'route_kind="default"', 'route_name="serviceprofile"'
        assert network.line("outbound_tcp_route_open_total", *of_profile) == "40"
        network.says(overrides=((B, 1),))
        assert {await network.bytes() for _ in range(5)} == {B.encode()}
        network.says(route(), is_opaque=True)
        assert await network.bytes() == NAME.encode(), "routes are for requests: the policy's opaque route counts"
        network.says(is_opaque=True, overrides=((A, 1),))
        network.policy.set(balance_policy(NAME))
        assert await network.bytes() == A.encode(), "without an opaque route of the policy"

    story(play)


# ---- precedence


def test_a_profile_without_routes_or_targets_leaves_everything_to_the_policy() -> None:
    async def play(network: Profiled) -> None:
        seen = await network.serve()
        network.start()
        assert (await network.get()).endswith(NAME.encode())
        assert not network.lines("route_request_total")
        assert b"l5d-dst-canonical" not in seen[0]

    story(play)


def test_a_profile_takes_precedence_over_the_policys_routes() -> None:
    async def play(network: Profiled) -> None:
        seen = await network.serve()
        network.policy.set(balance_policy("nowhere.test.svc.cluster.local:80"))
        network.says(route())
        network.start()
        answer = await ask(network, DST, GET.replace(b"\r\n\r\n", b"\r\nl5d-dst-canonical: forged:1\r\n\r\n"))
        assert answer.endswith(NAME.encode())
        assert seen[0].lower().count(b"l5d-dst-canonical") == 1
        assert f"l5d-dst-canonical: {NAME}\r\n".encode() in seen[0]

    story(play)


def test_an_endpoint_with_an_authority_of_its_own_is_not_told_the_profile() -> None:
    """It is in another cluster, where the service has another name: there the field would name a profile that is none."""

    async def play(network: Profiled) -> None:
        stage = Answering("x")
        meta = EndpointMeta(authority_override="web.other.svc.cluster.local:80")
        network.fake.names[NAME] = Watch(reset({h2_server(network, stage).addr: meta}))
        network.says(route())
        network.start()
        headers, _ = await h2_request(network.redirect(DST), "GET", "profiles", "/a/b")
        (request,) = stage.requests
        assert headers[":status"] == "200" and request.authority == b"web.other.svc.cluster.local:80"
        assert not [one for one in request.fields if one.name == b"l5d-dst-canonical"]

    story(play)


def test_a_policy_that_became_opaque_leaves_the_profiles_routes() -> None:
    async def play(network: Profiled) -> None:
        await network.serve()
        network.says(route())
        network.start()
        client = await network.client()
        assert (await client.ask())[0] == 200
        network.policy.set(balance_policy(NAME, OPAQUE))
        network.says()
        assert (await client.ask())[0] == 200
        assert network.line("route_request_total") == "2"

    story(play)


# ---- routes and what is counted


def answers(status: int) -> Serve:
    def answer(request: Message) -> bytes:
        return ok(b"answer").replace(b" 200 OK", b" %d Whatever" % status, 1)

    return http1_app(answer)


@pytest.mark.acceptance("CLASS-03")
def test_routes_are_told_apart_and_counted() -> None:
    async def play(network: Profiled) -> None:
        await network.serve(serve=answers(404))
        network.says(
            route(
                "GET books",
                AllOf((MethodIs(b"GET"), path(r"^/books/\d+$"))),
                classes=ResponseClasses(failures=frozenset((404,))),
                has_classes=True,
            ),
            route("books", path("^/books.*$")),
        )
        network.start()
        client = await network.client()
        for target, method in (("/books/1?x=1", "GET"), ("/books/1", "PUT"), ("/books/x", "GET"), ("/other", "GET")):
            assert (await client.ask(target, method))[0] == 404
        start = f'route_request_total{{direction="outbound",dst="{NAME}"'
        assert sorted(network.lines("route_request_total")) == [
            start + ',rt_route="GET books"} 1',
            start + ',rt_route="books"} 2',
            start + "} 1",
        ]
        of_books = f'direction="outbound",dst="{NAME}",rt_route="GET books",status_code="404"'
        failed = f'{of_books},classification="failure",grpc_status="",error=""'
        for family in ("route_response_total", "route_actual_response_total"):
            assert f"{family}{{{failed}}} 1" in network.lines(family)
            assert network.line(family, 'rt_route="books"', 'classification="success"') == "2"
        assert network.line("route_actual_request_total", 'rt_route="books"') == "2"
        assert f"route_response_latency_ms_count{{{of_books}}} 1" in network.metrics()
        assert "route_actual_response_latency" not in network.metrics()
        # The route's classes are the endpoint's, too.
        assert network.line("response_total", 'status_code="404"', 'classification="failure"') == "1"
        assert network.line("response_total", 'status_code="404"', 'classification="success"') == "3"

    story(play)


def test_what_reaches_no_endpoint_is_a_failure_without_a_status() -> None:
    async def play(network: Profiled) -> None:
        network.fake.names[NAME] = Watch(reset({}))
        network.says(route())
        network.start()
        assert (await network.get_after(0.5)).startswith(b"HTTP/1.1 504 ")
        assert (await network.get()).startswith(b"HTTP/1.1 503 ")
        unclassified = 'rt_route="all",classification="failure",grpc_status="",error="unclassified"'
        assert network.line("route_response_total", unclassified) == "2"
        assert len(network.lines("route_response_total")) == 1
        assert network.line("route_response_latency_ms_count") == "0"

    story(play)


def test_an_endpoint_that_refuses_is_answered_for_with_a_status() -> None:
    async def play(network: Profiled) -> None:
        network.fake.names[NAME] = Watch(reset({REFUSING: EndpointMeta()}))
        network.says(route())
        network.start()
        assert (await network.get()).startswith(b"HTTP/1.1 502 ")
        assert network.line("route_response_total", 'status_code="502"', 'classification="failure"') == "1"

    story(play)


def test_a_client_that_leaves_is_nobodys_failure() -> None:
    async def play(network: Profiled) -> None:
        asked = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            with suppress(ConnectionError):
                await reader.read()
            writer.close()

        await network.serve(serve=silent)
        network.says(route(timeout_s=30.0))
        network.start()
        sock = network.redirect(DST)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        sock.send(GET)
        await asked.wait()
        sock.close()  # with a reset
        await until(lambda: not len(network.drain))
        assert not network.lines("route_response_total") and network.line("route_request_total") == "1"

    story(play)


@pytest.mark.acceptance("CLASS-05")
@pytest.mark.parametrize("status", [200, 404, 500])
def test_a_response_that_nobody_reads_to_its_end_is_classified_by_its_head(status: int) -> None:
    async def play(network: Profiled) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 9\r\n\r\nhalf" % status)
            with suppress(ConnectionError):
                await reader.read()
            writer.close()

        await network.serve(serve=serve)
        network.says(route(classes=ResponseClasses(failures=frozenset((404,))), has_classes=True))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(GET)
        await asyncio.wait_for(reader.readuntil(b"half"), 10)
        assert not network.lines("response_total") and not network.lines("route_response_total")
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        writer.transport.abort()
        await until(lambda: not len(network.drain))
        word = "success" if status == 200 else "failure"
        labels = f'status_code="{status}",classification="{word}",grpc_status="",error=""'
        for family in ("response_total", "route_response_total", "route_actual_response_total"):
            assert network.line(family, labels) == "1"

    story(play)


def test_grpc_and_a_class_that_says_nothing_of_its_status() -> None:
    async def play(network: Profiled) -> None:
        stage = Answering("x", fields=((b"grpc-status", b"4"),))
        network.fake.names[NAME] = Watch(reset({h2_server(network, stage).addr: EndpointMeta()}))
        network.says(route(classes=ResponseClasses(failures=frozenset((500,))), has_classes=True))
        network.start()
        await h2_request(network.redirect(DST), "POST", "profiles", "/a/b", [("content-type", "application/grpc")])
        assert field(b"l5d-dst-canonical", NAME.encode()) in stage.requests[0].fields
        labels = 'status_code="200",classification="failure",grpc_status="4",error=""'
        assert network.line("route_response_total", labels) == "1"
        assert network.line("response_total", labels) == "1"

    story(play)


# ---- timeouts


@pytest.mark.acceptance("PROF-14")
def test_a_response_that_comes_too_late() -> None:
    async def play(network: Profiled) -> None:
        asked, gone = asyncio.Event(), asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            with suppress(ConnectionError):
                await reader.read()
            gone.set()
            writer.close()

        await network.serve(serve=silent)
        network.says(route(timeout_s=0.1))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(GET)
        await asyncio.wait_for(asked.wait(), 10)
        network.ticking.pass_time(0.05)
        assert network.outbound.runtime.in_flight.count == 1
        network.ticking.pass_time(0.2)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 504 ") and b"\r\nconnection: close\r\n" in answer.lower()
        text = f"logical service {NAME}: HTTP response timeout after 100ms"
        assert f"l5d-proxy-error: {text}\r\n".encode() in answer
        assert network.line("route_response_total") == "1"
        found = 'rt_route="all",classification="failure",grpc_status="",error="timeout"'
        assert network.line("route_response_total", f'dst="{NAME}",{found}') == "1"
        assert network.line("outbound_http_errors_total", 'error="response timeout"') == "1"
        # The endpoint has not failed, and has no response to be counted.
        assert not network.lines("response_total") and not network.lines("route_actual_response_total")
        await asyncio.wait_for(gone.wait(), 10)
        assert network.outbound.runtime.in_flight.count == 0

    story(play)


def test_waiting_for_an_endpoint_counts() -> None:
    async def play(network: Profiled) -> None:
        network.fake.names[NAME] = Watch(reset({}))
        network.says(route(timeout_s=0.1))
        network.start()
        answer = await network.get_after(0.2)
        assert answer.startswith(b"HTTP/1.1 504 ") and b"HTTP response timeout after 100ms" in answer

    story(play)


def test_the_body_may_take_longer() -> None:
    async def play(network: Profiled) -> None:
        go_on = asyncio.Event()

        async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
            await go_on.wait()
            writer.write(b"late")
            writer.close()

        await network.serve(serve=slowly)
        network.says(route(timeout_s=0.1))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(GET)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        network.ticking.pass_time(5.0)
        go_on.set()
        assert await asyncio.wait_for(reader.readexactly(4), 10) == b"late"
        writer.close()

    story(play)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1, "100ms"), (1.0, "1s"), (1.5, "1.5s"), (0.0015, "1.5ms"), (90.0, "90s"), (2e-6, "2µs"), (5e-9, "5ns")],
)
def test_durations_are_written_as_linkerd_does(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
