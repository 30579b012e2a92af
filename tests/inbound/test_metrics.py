"""The inbound side's metrics after traffic, with the same queries as linkerd2-proxy's own tests."""

from __future__ import annotations

import pytest

from tests.inbound.kit import OK, Workload
from tests.kit.http1 import Client
from tests.kit.sockets import Ticking, run, until

GET = b"GET / HTTP/1.1\r\nhost: tele.test.svc.cluster.local\r\n\r\n"
HELLO, BYE = b"custom tcp hello\n", b"custom tcp bye"
SRC = 'direction="inbound",peer="src"'
DST = 'direction="inbound",peer="dst",tls="no_identity",no_tls_reason="loopback"'


async def exchange_bytes(workload: Workload) -> Client:
    workload.app.answer = lambda said: BYE if len(said) == len(HELLO) else None
    client = await workload.connect()
    client.write(HELLO)
    assert await client.read(len(BYE)) == BYE
    return client


@pytest.mark.acceptance("TELE-04", "TELE-06")
def test_requests_and_responses() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            port = f'target_port="{workload.app.port}"'
            assert not workload.lines("request_total") and not workload.lines("response_total")
            client = await workload.connect()
            assert await client.ask(GET) == OK
            assert workload.metric("request_total", port, 'direction="inbound"') == 1
            assert workload.metric("response_total", port, 'classification="success"') == 1
            assert workload.metric("response_latency_ms_count", port, 'status_code="200"') == 1
            client.close()

    run(story)


@pytest.mark.acceptance("TELE-08")
@pytest.mark.parametrize("status", [200, 304, 400, 418, 504, 500])
def test_classes_by_status(status: int) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n".encode()
            client = await workload.connect()
            await client.ask(GET)
            (line,) = workload.lines("response_total")
            assert f'status_code="{status}"' in line and line.endswith(" 1")
            assert ('classification="failure"' in line) is (status >= 500)
            client.close()

    run(story)


@pytest.mark.acceptance("TELE-17", "TELE-32")
def test_http_connections_from_clients() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            for count in (1, 2):
                client = await workload.connect()
                assert await client.ask(GET) == OK
                assert workload.metric("tcp_open_total", SRC, 'no_tls_reason="no_tls_from_remote"') == count
                assert workload.metric("tcp_open_connections", SRC) == 1
                client.close()
                await until(lambda: workload.metric("tcp_close_total", SRC, 'errno=""') == count)  # noqa: B023
                assert workload.metric("tcp_open_connections", SRC) == 0

    run(story)


@pytest.mark.acceptance("TELE-19")
def test_http_connections_to_the_app_are_shared() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect()
            for _ in range(2):
                assert await client.ask(GET) == OK
                assert workload.metric("tcp_open_total", DST) == 1
            client.close()

    run(story)


@pytest.mark.acceptance("TELE-21", "TELE-25", "TELE-27")
def test_forwarded_bytes() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await exchange_bytes(workload)
            assert workload.metric("tcp_open_total", DST) == 1
            assert workload.metric("tcp_write_bytes_total", SRC) == 14
            assert workload.metric("tcp_write_bytes_total", DST) == 17
            assert workload.metric("tcp_read_bytes_total", SRC) == 17
            assert workload.metric("tcp_read_bytes_total", DST) == 14
            client.close()

    run(story)


@pytest.mark.acceptance("TELE-23", "TELE-30")
def test_forwarded_connections() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            server = 'srv_kind="default",srv_name="all-unauthenticated"'
            for count in (1, 2):
                client = await exchange_bytes(workload)
                assert workload.metric("tcp_open_total", SRC, server) == count
                assert workload.metric("tcp_open_connections", SRC, server) == 1
                client.close()
                await until(lambda: workload.metric("tcp_close_total", SRC, server, 'errno=""') == count)  # noqa: B023
                assert workload.metric("tcp_open_connections", SRC, server) == 0

    run(story)


def test_labels_are_in_the_recorded_order() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect_tls("web.ns.local")
            assert await client.ask(GET) == OK
            client.close()
            port = workload.app.port
            labels = (
                f'direction="inbound",target_addr="127.0.0.1:{port}",target_ip="127.0.0.1",target_port="{port}",'
                'tls="true",client_id="web.ns.local",srv_group="",srv_kind="default",srv_name="all-unauthenticated",'
                f'srv_port="{port}",route_group="",route_kind="default",route_name="default",'
                'authz_group="",authz_kind="default",authz_name="all-unauthenticated"'
            )
            assert workload.lines("request_total") == [f"request_total{{{labels}}} 1"]

    run(story)
