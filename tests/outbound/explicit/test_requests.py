"""Explicit outbound over real sockets: absolute-form, Host, CONNECT; which client may go where, and what a refusal
contains.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from typing import Any

import pytest

from proxy.balance.endpoints import Resolution, reset
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.watch import Absent, Watch
from proxy.outbound.explicit.connect import RefusedError
from proxy.outbound.explicit.connection import ExplicitConnection
from proxy.policy.client import OPAQUE, TLS, ClientPolicy, StreamRoute
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import default_meta
from proxy.policy.routes.route import HostMatch
from tests.kit.http1 import DEADLINE_S
from tests.kit.http2 import Answered, Asked, Http2Client, Http2Server
from tests.kit.network import (
    SERVICE,
    Answering,
    Network,
    balance_policy,
    exchange,
    h2_request,
    h2_server,
    hello_bytes,
    http_server,
)
from tests.kit.sockets import Ticking, run, tcp_pair, until

WEB = "web.ns.svc.cluster.local:80"
ABSOLUTE = b"GET http://web.ns.svc.cluster.local/a?b=c HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
BY_HOST = b"GET / HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@pytest.mark.parametrize("host", [b"web.ns.svc.cluster.local", b"other.example", b""])
def test_absolute_form_reaches_the_service_in_origin_form(host: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: list[bytes] = []
        network.name(WEB, await network.server(http_server("one", seen)))
        answer = await exchange(network.start(), ABSOLUTE % host)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"one")
        assert seen[0].startswith(b"GET /a?b=c HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\n")
        assert seen[0].lower().count(b"host:") == 1
        network.close()

    run(story)


def test_a_connect_without_a_port_is_for_https() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.name("web.ns.svc.cluster.local:443", await network.server(http_server("https")))
        reader, writer = await asyncio.open_connection(*network.start())
        writer.write(b"CONNECT web.ns.svc.cluster.local HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\n\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).startswith(b"HTTP/1.1 200 ")
        writer.write(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")
        assert b"X-Server: https" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        writer.close()
        network.close()

    run(story)


def test_host_routes_and_one_connection_reaches_several_services() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        for name in ("a", "b"):
            network.name(f"{name}.ns.svc.cluster.local:8080", await network.server(http_server(name)))
        proxy = network.start()
        reader, writer = await asyncio.open_connection(*proxy)
        for name in ("a", "b", "a"):
            writer.write(b"GET / HTTP/1.1\r\nHost: %b.ns.svc.cluster.local:8080\r\n\r\n" % name.encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ") and await reader.readexactly(1) == name.encode()
        assert len(network.outbound.discovery) == 2
        writer.close()
        network.close()

    run(story)


@pytest.mark.parametrize("host", [b"web", b"WEB.ns", b"web.ns.svc", b"web.ns.svc.cluster.local."])
def test_row_b42_short_names_are_searched_for_in_the_mesh(host: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: list[bytes] = []
        network.name(WEB, await network.server(http_server("one", seen)))
        answer = await exchange(network.start(), BY_HOST % host)
        assert answer.endswith(b"one") and b"Host: %b\r\n" % host in seen[0]
        network.close()

    run(story)


def test_a_name_of_the_mesh_that_nobody_serves_gets_502_with_its_reason() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies["none.ns.svc.cluster.local:80"] = Watch(Absent("no such service"))
        proxy = network.start()
        for request in (
            BY_HOST % b"none.ns.svc.cluster.local",
            b"CONNECT none.ns.svc.cluster.local:80 HTTP/1.1\r\n\r\n",
        ):
            answer = await exchange(proxy, request, ends=True)
            assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
            assert b"none.ns.svc.cluster.local:80 is not served by the mesh: no such service\r\n" in answer
        assert ("resolve", "none.ns.svc.cluster.local:80") not in network.fake.asked
        network.close()

    run(story)


def test_another_name_is_resolved_by_the_system_and_reached_plainly() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = await network.server(http_server("outside"))
        network.fake.hosts["example.org:80"] = Watch(Resolution())
        proxy = network.start()
        waiting = asyncio.create_task(exchange(proxy, BY_HOST % b"Example.ORG"))
        while ("resolve", "example.org:80") not in network.fake.asked:
            await asyncio.sleep(0.001)
        network.fake.hosts["example.org:80"].set(reset({server: EndpointMeta()}))
        assert (await waiting).endswith(b"outside")
        assert not [question for question in network.fake.asked if question[0] != "resolve"]
        answer = await exchange(proxy, BY_HOST % b"nowhere.example")
        assert answer.startswith(b"HTTP/1.1 502 ") and b"nowhere.example:80 cannot be resolved: no such name" in answer
        network.close()

    run(story)


@pytest.mark.parametrize("authority", [b"example.org", b"10.1.2.3:80", b"[::1]:80"])
def test_a_client_from_elsewhere_reaches_the_mesh_only(authority: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.start()
        near, far = tcp_pair()
        protocols: Any = network.outbound._protocols
        connection = ExplicitConnection(protocols, network.outbound.discovery, far, Addr("10.9.9.9", 1234))
        with pytest.raises(RefusedError, match="not on loopback") as refused:
            connection.destination(authority, 80)
        assert refused.value.failure.status == 403
        assert connection.destination(b"web.ns.svc.cluster.local", 80).target == WEB
        near.close()
        far.close()
        network.close()

    run(story)


@pytest.mark.parametrize(
    ("request_bytes", "status", "text"),
    [
        (b"GET https://web.ns.svc.cluster.local/ HTTP/1.1\r\nHost: a\r\n\r\n", b"400", b"CONNECT"),
        (b"GET WSS://web.ns.svc.cluster.local/ HTTP/1.1\r\nHost: a\r\n\r\n", b"400", b"wss is reached through CONNECT"),
        (b"GET ftp://web.ns.svc.cluster.local/ HTTP/1.1\r\nHost: a\r\n\r\n", b"400", b"ftp://: this proxy serves http"),
        (b"GET http+unix://web.ns.svc.cluster.local/ HTTP/1.1\r\nHost: a\r\n\r\n", b"400", b"http+unix://: this"),
        (b"GET http://web.ns.svc.cluster.local:0/ HTTP/1.1\r\nHost: a\r\n\r\n", b"400", b"not an authority"),
        (b"CONNECT web.ns.svc.cluster.local:0 HTTP/1.1\r\nHost: a\r\n\r\n", b"400", b"not an authority"),
        (b"GET / HTTP/1.0\r\n\r\n", b"400", b"neither the target nor Host"),
        (b"CONNECT nothing HTTP/9.9\r\n\r\n", b"505", b""),
        (b"CONNECT / HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\n\r\n", b"400", b""),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 1\r\n\r\nx", b"400", b""),
        (b"CONNECT a:1 HTTP/1.0\r\nContent-Length: 1\r\n\r\nx", b"400", b""),
        (b"CONNECT a..b:80 HTTP/1.1\r\n\r\n", b"400", b"not a DNS name"),
        (BY_HOST % b"opaque.ns.svc.cluster.local", b"502", b"does not speak HTTP"),
    ],
)
def test_refusals_name_what_was_wrong(request_bytes: bytes, status: bytes, text: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies["opaque.ns.svc.cluster.local:80"] = Watch(balance_policy(protocol=OPAQUE))
        answer = await exchange(network.start(), request_bytes, ends=True)
        assert answer.split(b" ")[1] == status
        assert text in answer
        network.close()

    run(story)


def test_the_scheme_of_http_2_is_judged_as_that_of_absolute_form() -> None:
    """Also that of a request whose authority is the last one's, which finds its router without a further look."""

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: list[Asked] = []

        def answers(server: Http2Server, asked: Asked) -> None:
            seen.append(asked)
            server.h2.send_headers(asked.stream_id, [(":status", "200")], end_stream=True)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await Http2Server(on_whole=answers, encoding=None).serve(reader, writer)

        network.name(WEB, await network.server(serve))
        reader, writer = await asyncio.open_connection(*network.start())
        client = Http2Client()

        async def ask(scheme: str) -> Answered:
            stream = client.ask([(":method", "GET"), (":scheme", scheme), (":authority", WEB), (":path", "/a")])
            while not client.answers[stream].is_over:
                writer.write(client.take())
                client.feed(await asyncio.wait_for(reader.read(65536), DEADLINE_S))
            return client.answers[stream]

        for scheme in ("http", "ws", "HTTP", "http"):
            assert (await ask(scheme)).status == "200"
        before = len(seen)
        for scheme, text in (
            ("https", "https is reached through CONNECT"), ("wss", "wss is reached through CONNECT"),
            ("ftp", "ftp://: this proxy serves http only"), ("http+unix", "http+unix://: this proxy serves http only"),
        ):  # fmt: skip
            answer = await ask(scheme)
            assert answer.status == "400" and text in dict(answer.headers)["l5d-proxy-error"]
        assert len(seen) == before
        writer.close()
        network.close()

    run(story)


def test_connect_opens_a_tunnel_for_opaque_bytes() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello first\n")
            while data := await reader.read(65536):
                writer.write(data.upper())
            writer.write(b"bye")
            writer.close()

        network.name("db.ns.svc.cluster.local:5432", await network.server(echo))
        network.fake.policies["db.ns.svc.cluster.local:5432"] = Watch(
            balance_policy("db.ns.svc.cluster.local:5432", OPAQUE)
        )
        reader, writer = await asyncio.open_connection(*network.start())
        # Bytes glued to the CONNECT belong to the tunnel.
        writer.write(b"CONNECT db.ns.svc.cluster.local:5432 HTTP/1.1\r\nHost: x\r\n\r\nselect")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await reader.readline() == b"hello first\n"
        assert await reader.readexactly(6) == b"SELECT"
        writer.write_eof()
        assert await reader.read() == b"bye"
        writer.close()
        network.close()

    run(story)


@pytest.mark.parametrize("said", [b"", b"P", b"PRI * H"])
def test_a_client_that_does_not_come_to_the_point_is_let_go(said: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, OUTBOUND_DETECT_TIMEOUT="5s")
        reader, writer = await asyncio.open_connection(*network.start())
        writer.write(said)
        await until(lambda: len(network.drain) == 1)
        await asyncio.sleep(0.01)
        ticking.pass_time(4)
        assert 'reason="detection_timeout"' not in network.metrics()
        ticking.pass_time(1.5)
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
        assert 'sponson_connection_faults_total{direction="outbound",reason="detection_timeout"} 1' in network.metrics()
        writer.close()
        network.close()

    run(story)


def test_a_client_that_ends_within_its_first_octets_is_counted() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        reader, writer = await asyncio.open_connection(*network.start())
        writer.write(b"PRI * H")
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
        assert 'sponson_connection_faults_total{direction="outbound",reason="incomplete_head"} 1' in network.metrics()
        writer.close()
        network.close()

    run(story)


def test_a_client_that_leaves_before_its_tunnel_is_there_is_let_go() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies["db.ns.svc.cluster.local:5432"] = Watch(None)
        client = socket.create_connection(network.start())
        client.sendall(b"CONNECT db.ns.svc.cluster.local:5432 HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: ("policy", "db.ns.svc.cluster.local:5432") in network.fake.asked)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.close()
        await until(lambda: not len(network.drain))
        network.close()

    run(story)


@pytest.mark.parametrize("leaves", [False, True], ids=["waits", "has left"])
@pytest.mark.parametrize(
    "asked",
    [ABSOLUTE % b"x", b"CONNECT web.ns.svc.cluster.local:80 HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["GET", "CONNECT"],
)
def test_a_destination_that_nobody_tells_of_is_not_waited_for_for_ever(asked: bytes, leaves: bool) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[WEB] = Watch(None)
        reader, writer = await asyncio.open_connection(*network.start())
        writer.write(asked)
        await until(lambda: ("policy", WEB) in network.fake.asked)
        if leaves:
            writer.close()
        ticking.pass_time(limits.DISCOVERY_S - 0.1)
        await asyncio.sleep(0.01)
        assert len(network.drain) == 1
        ticking.pass_time(0.2)
        if not leaves:
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
            assert answer.startswith(b"HTTP/1.1 504 ")
            assert b"web.ns.svc.cluster.local:80 is not known: the control plane did not answer in 10s" in answer
            writer.close()
        await until(lambda: not len(network.drain))
        network.close()

    run(story)


def test_a_request_that_was_answered_for_want_of_a_destination_is_not_sent_when_that_is_known_after_all() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        seen: list[bytes] = []
        source: Watch[ClientPolicy | Absent | None] = Watch(None)
        network.name(WEB, await network.server(http_server("one", seen)))
        network.fake.policies[WEB] = source
        reader, writer = await asyncio.open_connection(*network.start())
        writer.write(b"GET http://web.ns.svc.cluster.local/late HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: ("policy", WEB) in network.fake.asked)
        ticking.pass_time(limits.DISCOVERY_S + 0.1)
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)).startswith(b"HTTP/1.1 504 ")
        source.set(balance_policy(WEB))
        answer = await exchange(network.listener.addr, ABSOLUTE % b"x")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert [one.split(b" ")[1] for one in seen] == [b"/a?b=c"]
        writer.close()
        network.close()

    run(story)


def test_a_name_outside_that_no_name_server_tells_in_time() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.hosts["slow.example:80"] = Watch(Resolution())
        where = network.start()
        waiting = asyncio.create_task(exchange(where, BY_HOST % b"slow.example"))
        await until(lambda: ("resolve", "slow.example:80") in network.fake.asked)
        while not waiting.done():
            ticking.pass_time(0.5)
            await asyncio.sleep(0.01)
        assert b"slow.example:80 is not known: the name servers did not answer in 10s" in await waiting
        network.close()

    run(story)


def test_http_inside_of_a_tunnel_is_detected_and_balanced() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.name(WEB, await network.server(http_server("one")))
        reader, writer = await asyncio.open_connection(*network.start())
        writer.write(b"CONNECT web.ns.svc.cluster.local:80 HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(3) == b"one"
        assert 'request_total{direction="outbound",authority="web.ns.svc.cluster.local"' in network.metrics()
        writer.close()
        network.close()

    run(story)


@pytest.mark.parametrize("count", [b"1", b"7", b"CONN", b"CONNECT", b"PRI * HTT"])
def test_a_client_that_leaves_before_its_first_request_is_only_gone(count: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        proxy = network.start()
        reader, writer = await asyncio.open_connection(*proxy)
        writer.write(count)
        writer.write_eof()
        assert b"200" not in await asyncio.wait_for(reader.read(), DEADLINE_S)
        writer.close()
        while len(network.drain):
            await asyncio.sleep(0.001)
        network.close()

    run(story)


@NEEDS_CURL
@pytest.mark.parametrize("tunnel", [[], ["--proxytunnel"]])
def test_curl_sends_and_gets_ten_megabytes(tunnel: list[str], tmp_path: Any) -> None:
    big = bytes(range(256)) * 40960
    (tmp_path / "up").write_bytes(big)

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        got = bytearray()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            if b"100-continue" in head.lower():
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            got.extend(await reader.readexactly(length))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + big)
            await writer.drain()
            writer.close()

        network.name(WEB, await network.server(serve))
        proxy = network.start()
        process = await asyncio.create_subprocess_exec(
            "curl", "-s", "-m", "20", *tunnel, "-x", f"http://{proxy}", "--data-binary", f"@{tmp_path}/up",
            "-o", f"{tmp_path}/down", "-w", "%{http_code}", "http://web.ns.svc.cluster.local/big",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await process.communicate()
        assert said == b"200" and process.returncode == 0
        assert bytes(got) == big and (tmp_path / "down").read_bytes() == big
        network.close()

    run(story)


def test_http_2_with_prior_knowledge_goes_by_its_authority() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        peer = h2_server(network, Answering("two"))
        network.name(WEB, peer.addr)
        proxy = network.start()
        sock = socket.create_connection((proxy.ip, proxy.port))
        sock.setblocking(False)
        headers, body = await h2_request(sock, "GET", "web.ns.svc.cluster.local", "/")
        assert headers[":status"] == "200" and body == b"two"
        network.close()

    run(story)


def test_tls_inside_of_a_tunnel_goes_by_its_sni() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"%d" % len(await reader.read()))
            writer.close()

        path = "secure.ns.svc.cluster.local:443"
        network.name(path, await network.server(serve))
        distribution = balance_policy(path).opaque_routes[0].distribution
        route = StreamRoute(default_meta("tls"), distribution, (HostMatch("secure.example"),))
        network.fake.policies[path] = Watch(ClientPolicy(SERVICE, TLS, tls_routes=(route,)))
        proxy = network.start()
        connect = b"CONNECT secure.ns.svc.cluster.local:443 HTTP/1.1\r\n\r\n"
        hello = hello_bytes("secure.example")
        answer = await exchange(proxy, connect + hello, ends=True)
        assert answer.endswith(b"\r\n\r\n%d" % len(hello))
        try:
            assert (await exchange(proxy, connect + hello_bytes("other.example"), ends=True)).endswith(b"\r\n\r\n")
        except ConnectionResetError:
            pass  # the reset may overtake the 200
        assert 'target_port="443",error="unexpected"} 1' in network.metrics()
        network.close()

    run(story)
