"""What clients get when the app fails, depending on their identity and on what they speak."""

from __future__ import annotations

import asyncio
import socket

import pytest

from proxy.core.address.addr import Addr
from proxy.core.failure.reason import Reason
from proxy.inbound.http.advice import advice_for
from proxy.policy.defaults import LOCALHOST
from proxy.policy.meta import Meta, default_meta
from proxy.policy.server import DETECT, Authorization, ServerPolicy, ServerRoute, ServerRule
from tests.inbound.kit import OK, PEER, Http2Client, Workload
from tests.kit.http1 import Client
from tests.kit.sockets import REFUSING, Ticking, run, until

GET = b"GET / HTTP/1.1\r\nhost: foo.svc.cluster.local:5550\r\n\r\n"


async def connect(workload: Workload, is_meshed: bool) -> Client:
    return await (workload.connect_tls() if is_meshed else workload.connect())


def error_of(answer: bytes) -> bytes | None:
    for line in answer.split(b"\r\n"):
        if line.startswith(b"l5d-proxy-error: "):
            return line[17:]
    return None


@pytest.mark.acceptance("INERR-01")
def test_a_working_app() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nHello world!"
            client = await workload.connect()
            assert (await client.ask(GET)).endswith(b"\r\n\r\nHello world!")
            client.close()

    run(story)


@pytest.mark.acceptance("INERR-02", "INERR-03")
@pytest.mark.parametrize("is_meshed", [True, False])
def test_an_app_that_refuses_to_be_connected(is_meshed: bool) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.original = REFUSING
            client = await connect(workload, is_meshed)
            client.write(GET)
            answer = await client.rest()
            assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
            assert error_of(answer) == (b"client error (Connect)" if is_meshed else None)
            assert (b"l5d-proxy-connection: close\r\n" in answer) is is_meshed
            assert b"onnection: close\r\n" in answer
            assert (b"app at %b: " % str(REFUSING).encode() in answer) is is_meshed
            client.close()

    run(story)


def test_where_to_look_follows_from_the_reason_and_else_from_the_status() -> None:
    assert advice_for(404, Reason.COMPLETE).startswith("the HTTPRoutes of the port's Server")
    assert advice_for(404, Reason.CONNECT_FAILED).startswith("does the app run")
    assert advice_for(599, Reason.COMPLETE) == "the log of the server's sidecar"


@pytest.mark.acceptance("INERR-04", "INERR-05")
@pytest.mark.parametrize("is_meshed", [True, False])
def test_an_app_that_cannot_be_connected_in_time(is_meshed: bool) -> None:
    async def story(ticking: Ticking) -> None:
        full = socket.socket()
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        async with Workload(ticking) as workload:
            workload.original = Addr(*full.getsockname())
            client = await connect(workload, is_meshed)
            client.write(GET)
            await until(lambda: workload.metric("inbound_http_authz_allow_total") == 1)
            ticking.pass_time(0.4)
            answer = await client.rest()
            assert answer.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
            assert error_of(answer) == (b"client error (Connect)" if is_meshed else None)
            client.close()
        for sock in (full, *fillers):
            sock.close()

    run(story)


@pytest.mark.acceptance("INERR-06", "INERR-07", "INERR-08", "INERR-09")
@pytest.mark.parametrize("is_meshed", [True, False])
@pytest.mark.parametrize("is_grpc", [True, False])
def test_an_http2_app_that_is_away(is_meshed: bool, is_grpc: bool) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.original = REFUSING
            client = Http2Client(await connect(workload, is_meshed))
            fields = [("content-type", "application/grpc")] if is_grpc else []
            asked = client.get("/", *fields)

            async def be_impatient() -> None:
                await until(lambda: workload.metric("inbound_http_authz_allow_total") == 1)
                ticking.pass_time(1.1)

            answered, _ = await asyncio.gather(asked, be_impatient())
            headers = dict(answered.headers)
            assert headers[":status"] == ("200" if is_grpc else "504")
            assert headers.get("grpc-status") == ("4" if is_grpc else None)
            assert ("service in fail-fast" in headers.get("l5d-proxy-error", "")) is is_meshed
            assert workload.metric("inbound_http_errors_total", 'error="failfast"') == 1
            assert client.goaways == [0], "a fatal answer takes the connection down, gracefully"
            client.close()
            if is_meshed and not is_grpc:
                assert "service x:80: service in fail-fast" in headers["l5d-proxy-error"]
            client = Http2Client(await connect(workload, is_meshed))
            headers = dict((await client.get("/", *fields)).headers)
            assert headers[":status"] == ("200" if is_grpc else "503"), "others need not wait as long"
            assert headers.get("grpc-status") == ("14" if is_grpc else None)
            assert ("service unavailable" in headers.get("l5d-proxy-error", "")) is is_meshed
            assert workload.metric("inbound_http_errors_total", 'error="loadshed"') == 1
            client.close()

    run(story)


@pytest.mark.parametrize("answer", [b"close", b"reset", b"hello, not HTTP\r\n\r\n"])
def test_an_app_that_breaks_off(answer: bytes) -> None:
    """The recording has 500 `unexpected error` for two of these; here the client gets the reason, and its connection
    stays open.
    """

    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: answer
            client = await workload.connect_tls()
            got = await client.ask(GET)
            assert got.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
            error = error_of(got)
            if answer == b"reset":
                assert error == b"client error (SendRequest)"
            else:
                assert error is not None and b"the peer" in error
                workload.app.answer = lambda said: OK
                assert await client.ask(GET) == OK, "the client's connection stays"
            client.close()

    run(story)


@pytest.mark.acceptance("INERR-11", "INERR-12")
@pytest.mark.parametrize("setting", ["unsafe", None])
def test_the_authority_label_is_there_if_asked_for(setting: str | None) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, INBOUND_METRICS_AUTHORITY_LABELS=setting) as workload:
            client = await workload.connect()
            assert await client.ask(GET) == OK
            client.close()
            await until(lambda: workload.lines("response_total"))
            (line,) = workload.lines("response_total")
            assert ('authority="foo.svc.cluster.local:5550"' in line) is (setting is not None)

    run(story)


@pytest.mark.acceptance("INERR-10")
def test_grpc_trailers_decide_the_class() -> None:
    async def story(ticking: Ticking) -> None:
        authz = Authorization(
            Meta("policy.linkerd.io", "serverauthorization", "testsaz"), LOCALHOST.networks, LOCALHOST.authentication
        )
        server = Meta("policy.linkerd.io", "server", "testsrv")
        route = ServerRoute(default_meta("default"), (), (authz,), (ServerRule(()),))
        async with Workload(ticking, ServerPolicy(server, DETECT, (), (route,))) as workload:
            workload.app.answer = lambda said: (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: grpc-status\r\n\r\n0\r\ngrpc-status: 2\r\n\r\n"
            )
            client = Http2Client(await workload.connect_tls())
            answered = await client.get(
                "/",
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("l5d-orig-proto", "HTTP/1.1"),
                method="POST",
            )
            assert answered.status == "200" and ("grpc-status", "2") in answered.trailers
            client.close()
            count = workload.metric(
                "response_total",
                'status_code="200"',
                'classification="failure"',
                'grpc_status="2"',
                f'srv_name="testsrv",srv_port="{workload.app.port}"',
                'route_group="",route_kind="default",route_name="default"',
                'authz_name="testsaz"',
            )
            assert count == 1

    run(story)


@pytest.mark.parametrize("peer", [PEER, None, ""])
def test_an_app_cannot_say_what_only_proxies_say(peer: str | None) -> None:
    """An app's response may not carry the marks of a proxy: a peer's proxy would close its client's connection, or
    take the answer for one of ours.
    """
    forged = b"HTTP/1.1 503 No\r\nL5d-Proxy-Error: forged\r\nl5d-proxy-connection: close\r\nl5d-other: kept\r\ncontent-length: 0\r\n\r\n"

    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: forged
            client = await (workload.connect() if peer == "" else workload.connect_tls(peer))
            for _ in range(2):  # the second time the head is a remembered one
                answer = await client.ask(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 503 No\r\n") and b"proxy" not in answer.lower()
                assert b"l5d-other: kept" in answer
            client.close()

    run(story)
