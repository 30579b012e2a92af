"""Detection by policy: which first bytes are served as HTTP, which are forwarded, which are refused."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace

import pytest

from proxy.core import limits
from proxy.policy.defaults import LOCALHOST
from proxy.policy.meta import Meta, default_meta
from proxy.policy.server import DETECT, GRPC, HTTP_1, HTTP_2, OPAQUE, TLS, ServerPolicy, ServerRoute, ServerRule
from tests.inbound.kit import OK, PEER, Http2Client, Workload
from tests.kit.certificates import credentials
from tests.kit.environment import NAME
from tests.kit.sockets import Ticking, run, until

GET = b"GET / HTTP/1.1\r\nhost: app\r\n\r\n"
PLAIN = b"foo\r\nbar\r\nblah\r\n"
RESULTS = ("not_http", "http/1", "http/2", "read_timeout", "error")


def policy(protocol: str) -> ServerPolicy:
    """The policy that the control plane would send for `testsrv`; it permits everyone on loopback."""
    has_routes = protocol not in (OPAQUE, TLS)
    route = ServerRoute(default_meta("default"), (), (LOCALHOST,), (ServerRule(()),))
    return ServerPolicy(
        Meta("policy.linkerd.io", "server", "testsrv"),
        protocol,
        () if protocol in (HTTP_1, HTTP_2, GRPC) else (LOCALHOST,),
        (route,) if has_routes else (),
        detect_timeout_s=1.0,
    )


def results(workload: Workload) -> dict[str, float]:
    """The series that exist, by result."""
    name = "inbound_tcp_detect_http_results_total"
    return {
        result: workload.metric(name, f'result="{result}"')
        for result in RESULTS
        if any(f'result="{result}"' in line for line in workload.lines(name))
    }


def only(result: str) -> dict[str, float]:
    return {one: float(one == result) for one in RESULTS}


def echo(said: bytes) -> bytes:
    return b"echo " + said


@pytest.mark.acceptance("ACC-05")
def test_what_is_not_http_is_forwarded() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(DETECT)) as workload:
            workload.app.answer = echo
            client = await workload.connect()
            client.write(PLAIN)
            assert await client.read(len(PLAIN) + 5) == b"echo " + PLAIN
            assert results(workload) == only("not_http")
            labels = (
                f'srv_group="policy.linkerd.io",srv_kind="server",srv_name="testsrv",srv_port="{workload.app.port}"'
            )
            assert workload.metric("inbound_tcp_detect_http_results_total", 'result="not_http"', labels) == 1
            client.close()

    run(story)


@pytest.mark.acceptance("ACC-06", "TRANS-02")
def test_http1_is_served() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(DETECT)) as workload:
            client = await workload.connect()
            assert await client.ask(GET) == OK
            assert workload.app.saw == [GET]
            assert results(workload) == only("http/1")
            client.close()

    run(story)


@pytest.mark.acceptance("ACC-07")
def test_a_mesh_peer_of_an_http1_port_is_detected_http1() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(HTTP_1)) as workload:
            client = await workload.connect_tls()
            assert await client.ask(GET) == OK
            assert results(workload) == only("http/1")
            client.close()

    run(story)


@pytest.mark.acceptance("ACC-08")
def test_a_mesh_peer_of_an_http1_port_may_speak_http2() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(HTTP_1)) as workload:
            client = Http2Client(await workload.connect_tls())
            answered = await client.get("/", ("l5d-orig-proto", "HTTP/1.1"))
            assert answered.status == "200" and answered.body == b"ok"
            assert results(workload) == only("http/2")
            client.close()

    run(story)


@pytest.mark.acceptance("ACC-09")
@pytest.mark.parametrize("protocol", [HTTP_2, GRPC])
def test_an_http2_port_is_not_detected(protocol: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(protocol)) as workload:
            client = Http2Client(await workload.connect_tls())
            answered = await client.get("/", ("l5d-orig-proto", "HTTP/1.1"))
            assert answered.status == "200"
            assert results(workload) == {}
            client.close()

    run(story)


def test_a_plain_client_of_an_http1_port_is_not_detected() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(HTTP_1)) as workload:
            client = await workload.connect()
            assert await client.ask(GET) == OK
            assert results(workload) == {}
            other = await workload.connect()
            other.write(PLAIN + b"\r\n")
            assert (await other.rest()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
            client.close()
            other.close()

    run(story)


@pytest.mark.acceptance("ACC-04")
def test_an_opaque_port_is_forwarded_unread() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(OPAQUE)) as workload:
            workload.app.answer = echo
            client = await workload.connect()
            client.write(b"\x16\x03\x01 or GET / HTTP/1.1\r\n\r\n")
            await until(lambda: workload.app.all_said)
            assert workload.app.saw == [b"\x16\x03\x01 or GET / HTTP/1.1\r\n\r\n"]
            assert results(workload) == {}
            assert workload.metric("tcp_open_total", 'peer="src"', 'no_tls_reason="port_skipped"') == 1
            client.close()

    run(story)


def test_a_tls_port_is_forwarded_and_not_searched_for_http() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(TLS)) as workload:
            client = await workload.connect_tls()
            client.write(GET)
            assert await client.read(len(OK)) == OK
            assert results(workload) == {}
            assert workload.metric("inbound_tcp_authz_allow_total", 'tls="true"') == 1
            client.close()

    run(story)


@pytest.mark.acceptance("TRANS-05")
def test_tcp_goes_both_ways_without_any_policy() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: b"custom tcp bye" if len(said) == 17 else None
            client = await workload.connect()
            client.write(b"custom tcp hello\n")
            assert await client.read(14) == b"custom tcp bye"
            assert workload.app.saw == [b"custom tcp hello\n"]
            client.close()

    run(story)


@pytest.mark.acceptance("TRANS-06", "TRANS-07")
@pytest.mark.parametrize("is_known", [True, False])
def test_a_server_may_speak_first_on_an_undetected_port(is_known: bool) -> None:
    async def story(ticking: Ticking) -> None:
        env = {"INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION": "1-65535"}
        async with Workload(ticking, policy(OPAQUE) if is_known else None, None, **env) as workload:
            workload.app.greeting = b"custom tcp server starts"
            client = await workload.connect()
            assert await client.read(24) == b"custom tcp server starts"
            client.write(b"custom tcp client second")
            await until(lambda: workload.app.all_said)
            assert workload.app.saw == [b"custom tcp client second"]
            client.close()

    run(story)


@pytest.mark.parametrize("is_meshed", [False, True])
def test_of_many_connections_at_once_to_an_app_that_speaks_first_none_waits_for_detection(is_meshed: bool) -> None:
    """Clients that find no room among the early dials at first are looked at again soon."""

    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, replace(policy(DETECT), detect_timeout_s=60.0)) as workload:
            workload.app.greeting = b"hello"
            count = limits.EARLY_DIALS + 20
            clients = [await (workload.connect_tls() if is_meshed else workload.connect()) for _ in range(count)]
            await until(lambda: len(workload.drain) == count)
            ticking.pass_time(0.3 if is_meshed else 0.3 + limits.HELLO_S)
            await until(lambda: results(workload).get("read_timeout") == limits.EARLY_DIALS, "the first are greeted")
            for _ in range(20):  # in steps: no connect to the app is to be late for the clock's sake
                ticking.pass_time(1.5 * limits.EARLY_AGAIN_S / 20)
                await until(lambda: not len(workload.inbound._runtime.early), "whoever was dialled is greeted")
            for client in clients:
                assert await client.read(5) == b"hello"
                client.close()

    run(story)


def test_a_peer_whose_hello_is_late_gets_no_greeting_in_plain_text() -> None:
    """Its packet was lost, or its proxy was busy. The app is dialled, and speaks, once the peer is known."""

    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, replace(policy(DETECT), detect_timeout_s=60.0)) as workload:
            workload.app.greeting = b"hello"
            sock = socket.create_connection((workload.listener.addr.ip, workload.listener.addr.port))
            await until(lambda: len(workload.drain) == 1)
            ticking.pass_time(limits.HELLO_S)
            await asyncio.sleep(0.02)
            assert not workload.app.saw
            context = credentials(PEER).client_context(False)
            reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=NAME)
            await until(lambda: workload.metric("tcp_open_connections", 'peer="src"') == 1)
            ticking.pass_time(0.3)
            assert await asyncio.wait_for(reader.readexactly(5), 10) == b"hello"
            writer.close()

    run(story)


def test_a_few_bytes_and_the_end_reach_the_app_undetected() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(DETECT)) as workload:
            client = await workload.connect()
            client.write(b"QUIT")
            client.writer.write_eof()
            await until(lambda: workload.app.has_eof == [True])
            assert workload.app.saw == [b"QUIT"]
            assert await client.rest() == b""
            client.close()

    run(story)


@pytest.mark.parametrize("is_meshed", [False, True])
def test_a_request_that_pauses_after_its_first_octets_is_seen_by_routes(is_meshed: bool) -> None:
    """As bytes it would pass by the route, which permits nobody."""

    async def story(ticking: Ticking) -> None:
        closed = ServerRoute(default_meta("closed"), (), (), (ServerRule(()),))
        async with Workload(ticking, replace(policy(DETECT), routes=(closed,), detect_timeout_s=10.0)) as workload:
            for first in (b"G", b"GET", b"GET / HTTP/1", b"\r\n"):
                client = await (workload.connect_tls() if is_meshed else workload.connect())
                client.write(first)
                await asyncio.sleep(0.05)
                for _ in range(8):
                    ticking.pass_time(1.0)
                    await asyncio.sleep(0.005)
                client.write(GET.removeprefix(first))
                assert (await client.read(12)) == b"HTTP/1.1 403"
                client.close()
            assert not workload.app.saw and results(workload) == {**only("http/1"), "http/1": 4.0}

    run(story)


def test_half_close_reaches_the_app() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = echo
            client = await workload.connect()
            client.write(PLAIN)
            await client.read(len(PLAIN) + 5)
            client.writer.write_eof()
            assert await client.rest() == b""
            assert workload.app.has_eof == [True]
            client.close()

    run(story)


@pytest.mark.parametrize(("protocol", "timeout_s"), [(DETECT, 1.0), (HTTP_1, 10.0)])
def test_a_mesh_peer_that_says_nothing_in_time(protocol: str, timeout_s: float) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, policy(protocol)) as workload:
            client = await workload.connect_tls()
            await until(lambda: workload.metric("tcp_open_connections", 'peer="src"') == 1)
            if protocol == DETECT:
                workload.app.greeting = b"hello"
            ticking.pass_time(timeout_s + 0.1)
            if protocol == HTTP_1:
                assert await client.ask(GET) == OK
            else:
                assert await client.read(5) == b"hello"
            assert results(workload) == only("read_timeout")
            client.close()

    run(story)


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        (b"GET / HTTP/1.1\r\nhost: a\r\nx : 1\r\n\r\n", 1),
        (b"GET / HTTP/1.1\r\nho", 1),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", 0),
        (b"POST * HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", 0),
    ],
    ids=["a bad head", "half a head", "a bad chunk", "a bad chunk behind an early answer"],
)
def test_a_connection_that_a_bad_head_ends_is_counted(sent: bytes, count: int) -> None:
    """As Linkerd's proxy counts it; a body that breaks the rules is a failure of its request."""

    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect()
            client.write(sent)
            client.close()
            await until(lambda: workload.metric("sponson_connection_faults_total") >= 1)
            assert workload.metric("inbound_tcp_errors_total", 'error="unexpected"') == count

    run(story)


def test_a_connection_that_ends_before_its_first_byte_is_counted() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect()
            client.close()
            await until(lambda: workload.metric("inbound_tcp_errors_total", 'error="i/o"') == 1)
            assert results(workload) == only("error")

    run(story)


def test_tls_for_another_name_passes_through_untouched() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            outgoing = ssl.MemoryBIO()
            context = ssl.create_default_context()
            session = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="other.example.com")
            with pytest.raises(ssl.SSLWantReadError):
                session.do_handshake()
            hello = outgoing.read()
            client = await workload.connect()
            client.write(hello[:100])
            client.write(hello[100:])
            await until(lambda: len(workload.app.all_said) == len(hello))
            assert workload.app.saw == [hello]
            assert workload.metric("tcp_open_total", 'peer="src"', 'tls="opaque",sni="other.example.com"') == 1
            client.close()

    run(story)
