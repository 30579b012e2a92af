"""Peers that connect to the proxy's own port and name another one in the transport header."""

from __future__ import annotations

import gc

import pytest

from proxy.core.connection.dial import ALPN
from proxy.policy.defaults import default_policy
from proxy.transport.detection.header import TransportHeader
from tests.inbound.kit import OK, PEER, Http2Client, Workload
from tests.kit.certificates import credentials
from tests.kit.environment import NAME
from tests.kit.sockets import Ticking, run, until

GET = b"GET / HTTP/1.1\r\nhost: app\r\n\r\n"
FAMILY = "inbound_tcp_transport_header_connections_total"


def test_http1_behind_the_header() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect_direct(TransportHeader(workload.app.port, "", "http/1"))
            assert await client.ask(GET) == OK
            assert workload.app.saw == [GET[:-2] + f"l5d-client-id: {PEER}\r\n\r\n".encode()]
            to_app = f'target_addr="127.0.0.1:{workload.app.port}"'
            assert workload.metric("tcp_open_total", 'direction="inbound",peer="src"', to_app, PEER) == 1
            assert workload.metric("request_total", to_app, PEER) == 1
            client.close()

    run(story)


def test_the_apps_connection_outlives_the_peers_and_ends_when_nobody_uses_it() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            for _ in range(3):
                client = await workload.connect_direct(TransportHeader(workload.app.port, "", "http/1"))
                assert await client.ask(GET) == OK
                client.close()
                await until(lambda: not len(workload.drain))
                gc.collect()
            assert (len(workload.app.saw), workload.app.has_eof) == (1, [False])
            ticking.pass_time(3.1)
            await until(lambda: workload.app.has_eof == [True])

    run(story)


def test_http2_behind_the_header() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = Http2Client(await workload.connect_direct(TransportHeader(workload.app.port, "", "http/2")))
            answered = await client.get("/", ("l5d-orig-proto", "HTTP/1.1"))
            assert (answered.status, answered.body) == ("200", b"ok")
            assert ("l5d-orig-proto", "HTTP/1.1") in answered.headers
            client.close()

    run(story)


def test_bytes_behind_the_header() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.app.answer = lambda said: b"raw answer" if said.endswith(b"header") else None
            client = await workload.connect_direct(TransportHeader(workload.app.port))
            client.write(b"hello behind the header")
            assert await client.read(10) == b"raw answer"
            assert workload.app.saw == [b"hello behind the header"]
            client.close()

    run(story)


def test_http_in_opaque_bytes_is_not_looked_at() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect_direct(TransportHeader(workload.app.port))
            client.write(GET)
            assert await client.read(len(OK)) == OK
            assert workload.app.saw == [GET]
            client.close()

    run(story)


def test_http_without_an_authority_goes_to_the_app_as_it_is() -> None:
    """Linkerd answers 500 here; docs/compatibility.md has the reason why we do not."""

    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect_direct(TransportHeader(workload.app.port, "", "http/1"))
            client.write(b"GET / HTTP/1.0\r\n\r\n")
            answer = await client.rest()
            assert answer.startswith(b"HTTP/1.0 200 ")
            assert workload.app.saw[0].startswith(b"GET / HTTP/1.0\r\n")
            assert b"host:" not in workload.app.saw[0].lower()
            client.close()

    run(story)


@pytest.mark.acceptance("IDIR-01", "IDIR-02", "IDIR-03")
@pytest.mark.parametrize(("port", "protocol"), [(8080, "http/1"), (8081, "http/2"), (8082, "")])
def test_connections_are_counted_by_header(port: int, protocol: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect_direct(TransportHeader(port, "", protocol), "test.client")  # type: ignore[arg-type]
            await until(lambda: workload.lines(FAMILY))
            assert workload.lines(FAMILY) == [
                f'{FAMILY}{{session_protocol="{protocol}",target_port="{port}",target_name="",client_id="test.client"}} 1'
            ]
            client.abort()

    run(story)


@pytest.mark.acceptance("IDIR-04")
@pytest.mark.parametrize("protocol", ["http/1", "http/2", ""])
def test_names_are_counted_too_and_closed_by_a_proxy_that_is_no_gateway(protocol: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            name = "mysvc.myns.svc.cluster.local"
            client = await workload.connect_direct(TransportHeader(8080, name, protocol), "test.client")  # type: ignore[arg-type]
            assert await client.rest() in (b"", b"<RST>")
            assert workload.metric(FAMILY, f'session_protocol="{protocol}"', f'target_name="{name}"') == 1
            assert workload.metric("inbound_tcp_errors_total", 'error="gateway domain invalid"') == 1
            client.close()

    run(story)


@pytest.mark.parametrize(
    ("peer", "offers_header", "said"),
    [(None, True, b""), (PEER, False, b""), (PEER, True, b"GET / HTTP/1.1\r\nhost: no transport header\r\n\r\n")],
    ids=["no-client-certificate", "no-alpn", "bad-header"],
)
def test_what_is_refused(peer: str | None, offers_header: bool, said: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.original = workload.listener.addr
            client = await workload.connect_tls(peer, offers_header=offers_header)
            client.write(said)
            assert await client.rest() in (b"", b"<RST>")
            error = "i/o" if said else "unexpected"
            assert workload.metric("inbound_tcp_errors_total", f'error="{error}"') == 1
            assert not workload.app.saw
            client.close()

    run(story)


def test_a_header_that_does_not_come_in_time() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.original = workload.listener.addr
            client = await workload.connect_tls(offers_header=True)
            await until(lambda: len(workload.drain) == 1)
            ticking.pass_time(10.1)
            assert await client.rest() in (b"", b"<RST>")
            assert workload.metric("inbound_tcp_errors_total", 'error="i/o"') == 1
            client.close()

    run(story)


def test_the_policy_of_the_headers_port_decides() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, default_policy("deny", (), 10.0)) as workload:
            client = await workload.connect_direct(TransportHeader(workload.app.port))
            assert await client.rest() in (b"", b"<RST>")
            assert set(workload.watches) >= {workload.app.port}
            assert workload.metric("inbound_tcp_authz_deny_total", f'srv_port="{workload.app.port}"', PEER) == 1
            client.close()

    run(story)


@pytest.mark.parametrize("protocol", ["", "http/1"])
def test_the_proxys_own_port_behind_the_header_is_a_loop(protocol: str) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect_direct(TransportHeader(workload.listener.addr.port, "", protocol))  # type: ignore[arg-type]
            if protocol:
                assert (await client.ask(GET)).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
                assert workload.metric("inbound_http_errors_total", 'error="unexpected"') == 1
            else:
                assert await client.rest() in (b"", b"<RST>")
                assert workload.metric("inbound_tcp_errors_total", 'error="unexpected"') == 1
            client.close()

    run(story)


def test_only_the_direct_port_selects_the_headers_protocol() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            for original, selected in ((None, None), (workload.listener.addr, ALPN)):
                workload.original = original
                client = await workload.connect_tls(offers_header=True)
                assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == selected
                client.abort()
            assert credentials(NAME).local_name == NAME

    run(story)


def test_whoever_repeats_itself_is_named_once_in_every_request() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = Http2Client(await workload.connect_direct(TransportHeader(workload.app.port, "", "http/2")))
            mark = ("l5d-orig-proto", "HTTP/1.1")
            for path in ("/a", "/a", "/a", "/b", "/a", "/b"):
                assert (await client.get(path, mark, ("l5d-client-id", "admin"))).status == "200"
            fields = f" HTTP/1.1\r\nHost: x\r\nl5d-client-id: {PEER}\r\n\r\n"
            expected = "".join(f"GET {path}{fields}" for path in ("/a", "/a", "/a", "/b", "/a", "/b"))
            assert workload.app.all_said.decode() == expected
            client.close()

    run(story)
