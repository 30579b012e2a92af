"""The app's own connections: which requests share one, and what happens while it is away."""

from __future__ import annotations

import asyncio
import dataclasses
import socket

import pytest

from proxy.core.address.addr import Addr
from proxy.inbound.http.local import Local
from proxy.policy.defaults import default_policy
from proxy.policy.server import HTTP_2
from tests.inbound.kit import OK, Http2Client, Workload
from tests.kit.http2 import Fields, http2_app, ok
from tests.kit.sockets import Ticking, run, until

KEPT = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.acceptance("TRANS-31")
def test_http_1_0_without_host() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect()
            client.write(b"GET / HTTP/1.0\r\n\r\n")
            assert (await client.rest()).startswith(b"HTTP/1.0 200 OK\r\n")
            assert workload.app.saw == [b"GET / HTTP/1.0\r\n\r\n"]
            client.close()

    run(story)


@pytest.mark.acceptance("TRANS-32")
@pytest.mark.parametrize("body", [b"", b"hello"])
def test_one_connection_per_host(body: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: KEPT if said.endswith(b"\r\n\r\n" + body) else None
            client = await workload.connect()
            counts = []
            for host in ("foo.bar", "foo.bar", "bar.baz", "bar.baz", "quuuux.com"):
                length = f"content-length: {len(body)}\r\n" if body else ""
                await client.ask(f"POST / HTTP/1.1\r\nhost: {host}\r\n{length}\r\n".encode() + body)
                counts.append(len(workload.app.saw))
            assert counts == [1, 1, 2, 2, 3]
            client.close()

    run(story)


@pytest.mark.acceptance("TRANS-33")
def test_an_empty_host_shares_nothing() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: KEPT if said.endswith(b"\r\n\r\n") else None
            client = await workload.connect()
            counts = []
            for host in ("", "", "foo.bar", ""):
                await client.ask(f"GET / HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
                counts.append(len(workload.app.saw))
            assert counts == [1, 2, 3, 4]
            client.close()

    run(story)


def test_an_idle_connection_is_dropped_after_three_seconds() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: KEPT if said.endswith(b"\r\n\r\n") else None
            client = await workload.connect()
            await client.ask(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            ticking.pass_time(3.1)
            await until(lambda: workload.app.has_eof == [True])
            client.close()

    run(story)


def test_an_app_that_nobody_uses_is_forgotten() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            local = Local(workload.inbound._runtime)
            first = local.take(Addr("127.0.0.1", 1))
            assert local.take(Addr("127.0.0.1", 1)) is first
            first.release()
            assert len(local) == 1, "one client still leads there"
            first.release()
            assert len(local) == 0

    run(story)


def test_more_requests_at_once_than_may_be_are_shed() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, INBOUND_MAX_IN_FLIGHT="1") as workload:
            workload.app.answer = lambda said: None
            client = Http2Client(await workload.connect_tls())
            carried = ("l5d-orig-proto", "HTTP/1.1")
            fields = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/"), carried]
            client.http2.ask(fields)
            answered = await client.get("/", carried)
            assert answered.status == "503"
            assert str(dict(answered.headers)["l5d-proxy-error"]).endswith("service unavailable")
            assert workload.metric("inbound_http_errors_total", 'error="loadshed"') == 1
            client.client.abort()

    run(story)


def test_a_request_that_its_client_gave_up_counts_no_more() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, INBOUND_MAX_IN_FLIGHT="1") as workload:
            workload.app.answer = lambda said: None
            client = Http2Client(await workload.connect_tls())
            carried = ("l5d-orig-proto", "HTTP/1.1")
            fields = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/"), carried]
            for turn in range(1, 4):
                stream_id = client.http2.ask(fields)
                client.send()
                await until(lambda turn=turn: workload.app.all_said.count(b"GET ") == turn)  # type: ignore[misc]
                client.http2.h2.reset_stream(stream_id, 8)
                client.send()
            workload.app.answer = lambda said: OK if said.endswith(b"\r\n\r\n") else None
            answered = await client.get("/", carried)
            assert (answered.status, answered.body) == ("200", b"ok")
            client.client.abort()

    run(story)


def test_a_response_that_has_begun_counts_no_more() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, INBOUND_MAX_IN_FLIGHT="1") as workload:
            begun = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nbegun"
            workload.app.answer = lambda said: begun if said.endswith(b"\r\n\r\n") else None
            client = Http2Client(await workload.connect_tls())
            carried = ("l5d-orig-proto", "HTTP/1.1")
            fields = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/"), carried]
            client.http2.ask(fields)
            client.send()
            await until(lambda: workload.metric("response_latency_ms_count", 'direction="inbound"') == 1)
            workload.app.answer = lambda said: OK if said.endswith(b"\r\n\r\n") else None
            answered = await client.get("/", carried)
            assert (answered.status, answered.body) == ("200", b"ok")
            client.client.abort()

    run(story)


class Http2App:
    """An app that speaks HTTP/2, by an independent library."""

    def __init__(self, reset: int | None = None) -> None:
        self.seen: list[Fields] = []
        self._serve = http2_app(lambda _: ok(b"") if reset is None else reset, self.seen)
        self._server: asyncio.Server | None = None

    @property
    def requests(self) -> list[dict[str, str]]:
        return [dict(fields) for fields in self.seen]

    async def start(self, port: int = 0) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()


@pytest.mark.acceptance("TRANS-34")
def test_an_http2_request_waits_for_its_app() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            app = Http2App()
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            workload.original = Addr("127.0.0.1", port)
            client = Http2Client(await workload.connect())

            async def begin_late() -> None:
                name = "tcp_open_total"
                labels = ('peer="src"', 'direction="inbound"', 'srv_kind="default",srv_name="all-unauthenticated"')
                await until(lambda: workload.metric(name, *labels) == 1)
                await until(lambda: workload.metric("request_total") == 1)
                await app.start(port)
                for _ in range(60):
                    ticking.pass_time(0.01)
                    await asyncio.sleep(0.005)

            answered, _ = await asyncio.gather(client.get("/"), begin_late())
            assert answered.status == "200"
            client.close()
            app.stop()

    run(story)


@pytest.mark.parametrize("is_meshed", [True, False])
def test_a_port_whose_policy_knows_http2_needs_no_detection(is_meshed: bool) -> None:
    async def story(ticking: Ticking) -> None:
        policy = dataclasses.replace(default_policy("all-unauthenticated", (), 10.0), protocol=HTTP_2)
        async with Workload(ticking, policy) as workload:
            app = Http2App()
            workload.original = Addr("127.0.0.1", await app.start())
            client = Http2Client(await (workload.connect_tls() if is_meshed else workload.connect()))
            assert (await client.get("/known")).status == "200"
            assert [one[":path"] for one in app.requests] == ["/known"]
            client.close()
            app.stop()

    run(story)


@pytest.mark.acceptance("TRANS-35")
def test_an_http2_request_without_authority() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            app = Http2App()
            workload.original = Addr("127.0.0.1", await app.start())
            client = Http2Client(await workload.connect())
            answered = await client.ask([(":method", "GET"), (":scheme", "http"), (":path", "/")])
            assert answered.status == "200"
            assert ":authority" not in app.requests[0] and "host" not in app.requests[0]
            client.close()
            app.stop()

    run(story)


@pytest.mark.acceptance("TRANS-36")
def test_the_apps_reset_reaches_the_client() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            app = Http2App(reset=11)
            workload.original = Addr("127.0.0.1", await app.start())
            client = Http2Client(await workload.connect())
            answered = await client.get("/")
            assert answered.reset == 11, "ENHANCE_YOUR_CALM"
            client.close()
            app.stop()

    run(story)


def test_clients_share_one_http2_connection_and_their_identity_goes_along() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            app = Http2App()
            workload.original = Addr("127.0.0.1", await app.start())
            clients = [Http2Client(await workload.connect_tls(name)) for name in ("a.ns.local", "b.ns.local")]
            for client in clients:
                assert (await client.get("/")).status == "200"
                client.close()
            assert [one["l5d-client-id"] for one in app.requests] == ["a.ns.local", "b.ns.local"]
            assert workload.metric("tcp_open_total", 'peer="dst"') == 1
            app.stop()

    run(story)
