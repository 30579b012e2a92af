"""Meshed endpoints over real TLS: identity, transport header, HTTP/1 inside HTTP/2, tunnels beside it, a replica that
is killed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core.address.addr import Addr
from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.core.watch import Watch
from proxy.http.h1.server import H1Server
from proxy.http.h2.server import H2Server
from proxy.http.head import HTTP_1_1, HTTP_2
from proxy.policy.client import HTTP_1, OPAQUE, ClientPolicy, forward_policy
from proxy.policy.endpoint import HINT_H2, EndpointMeta, TlsIdentity
from proxy.policy.meta import default_meta
from proxy.transport.detection.header import TransportHeader
from tests.kit.http1 import DEADLINE_S
from tests.kit.network import Answering, MeshedPeer, Network, balance_policy, exchange, h2_request, h2_server
from tests.kit.sockets import Ticking, run, until

WEB = "web.ns.svc.cluster.local:80"
DST = Addr("10.43.0.7", 80)
SERVER_ID = "web.ns.serviceaccount.identity.linkerd.cluster.local"
CLIENT_ID = "client.ns.serviceaccount.identity.linkerd.cluster.local"
GET = b"GET /x HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\nConnection: close\r\n\r\n"
APP = Addr("127.0.0.9", 8080)
"""The address on which the app of a meshed peer listens; only its proxy is ever dialled."""


def identity(name: str = SERVER_ID, **more: Any) -> EndpointMeta:
    return EndpointMeta(tls=TlsIdentity(name, name), **more)


class Speaker(Codec):
    """Sends a word at once, and then what it receives."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        wire.write(b"hello ")

    def feed(self, data: bytes) -> None:
        self._wire.write(data)

    def eof(self) -> None:
        self._wire.write(b" bye")
        self._wire.end()

    def writable(self, is_writable: bool) -> None: ...

    def lost(self, reason: object) -> None: ...

    def close(self) -> None: ...


def test_http_1_is_carried_over_http_2_and_mtls() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        stage = Answering("meshed")
        peer = MeshedPeer(network, SERVER_ID, lambda wire: H2Server(wire, stage, ticking.reactor.clock))
        network.name(WEB, peer.addr, meta=identity(hint=HINT_H2, labels=(("pod", "web-1"), ("namespace", "ns"))))
        proxy = network.start()
        for _ in range(3):
            answer = await exchange(proxy, GET)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"meshed")
            assert b"l5d-" not in answer
        assert [client.client_id for client in peer.clients] == [CLIENT_ID] and peer.clients[0].alpn == ""
        request = stage.requests[0]
        assert (request.version, request.authority, request.path) == (HTTP_2, b"web.ns.svc.cluster.local", b"/x")
        fields = {one.name: one.value for one in request.fields}
        assert fields[b"l5d-orig-proto"] == b"HTTP/1.1" and fields[b"host"] == b"web.ns.svc.cluster.local"
        labels = (
            f'direction="outbound",authority="web.ns.svc.cluster.local",target_addr="{peer.addr}",target_ip="127.0.0.1",'
            f'target_port="{peer.addr.port}",tls="true",server_id="{SERVER_ID}",dst_namespace="ns",dst_pod="web-1"'
        )
        metrics = network.metrics()
        assert f"request_total{{{labels}}} 3" in metrics
        assert (
            f'response_total{{{labels},status_code="200",classification="success",grpc_status="",error=""}} 3'
            in metrics
        )
        tcp = labels.replace('direction="outbound"', 'direction="outbound",peer="dst"')
        assert f"tcp_open_total{{{tcp}}} 1" in metrics
        network.close()

    run(story)


@pytest.mark.acceptance("IDN-07")
@pytest.mark.parametrize("is_meshed", [True, False])
@pytest.mark.parametrize("required", [SERVER_ID, "other.ns.serviceaccount.identity.linkerd.cluster.local", ""])
def test_a_request_may_require_who_its_endpoint_is(required: str, is_meshed: bool) -> None:
    """Over HTTP/1 and HTTP/2 alike, an endpoint with a wrong identity, or with none, gives a 502, as with Linkerd's
    proxy.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        stage = Answering("meshed")
        peer = MeshedPeer(network, SERVER_ID, lambda wire: H2Server(wire, stage, ticking.reactor.clock))
        plain = h2_server(network, stage)
        meta = identity(hint=HINT_H2) if is_meshed else EndpointMeta(hint=HINT_H2)
        network.fake.policies[DST] = Watch(balance_policy(WEB))
        network.fake.names[WEB] = Watch(reset({peer.addr if is_meshed else plain.addr: meta}))
        network.start()
        expected = "200" if not required or (is_meshed and required == SERVER_ID) else "502"
        fields = [("l5d-require-id", required)] if required else []
        for _ in range(2):
            headers, _ = await h2_request(network.redirect(DST), "GET", "web", "/", fields)
            assert headers[":status"] == expected
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(f"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n{lines}\r\n".encode())
        assert (await reader.read()).startswith(f"HTTP/1.1 {expected} ".encode())
        writer.close()
        assert not any(one.name == b"l5d-require-id" for asked in stage.requests for one in asked.fields)
        network.close()

    run(story)


@pytest.mark.parametrize("mark", ["HTTP/1.1", "HTTP/1.0", "HTTP/1.1; absolute-form", "h2c"])
def test_an_app_cannot_say_how_its_request_came(mark: str) -> None:
    """The peer's proxy believes `l5d-orig-proto` because a proxy of the mesh sends it. An app that could send it over
    HTTP/2 would choose what the other app's policy and the other app see.
    """

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        stage = Answering("meshed")
        peer = MeshedPeer(network, SERVER_ID, lambda wire: H2Server(wire, stage, ticking.reactor.clock))
        network.fake.policies[DST] = Watch(balance_policy(WEB))
        network.fake.names[WEB] = Watch(reset({peer.addr: identity(hint=HINT_H2)}))
        network.start()
        headers, _ = await h2_request(network.redirect(DST), "GET", "web", "/two", [("l5d-orig-proto", mark)])
        assert headers[":status"] == "200"
        request = f"GET /one HTTP/1.1\r\nHost: web\r\nl5d-orig-proto: {mark}\r\nConnection: close\r\n\r\n"
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(request.encode())
        assert (await asyncio.wait_for(reader.read(), DEADLINE_S)).startswith(b"HTTP/1.1 200 ")
        writer.close()
        marks = [
            (one.path, [field.value for field in one.fields if field.name == b"l5d-orig-proto"])
            for one in stage.requests
        ]
        assert marks == [(b"/two", []), (b"/one", [b"HTTP/1.1"])]
        network.close()

    run(story)


def test_an_upgrade_takes_a_connection_of_its_own_beside_http_2() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        heads: list[bytes] = []

        class First(Codec):
            """Serves HTTP/2 or, for a tunnel, plain HTTP/1 bytes."""

            def __init__(self, wire: Wire) -> None:
                self._wire = wire

            def feed(self, data: bytes) -> None:
                codec: Codec
                if data.startswith(b"PRI"):
                    codec = H2Server(self._wire, Answering("h2"), ticking.reactor.clock)
                    self._wire.hand_over(codec)
                    codec.feed(data)
                    return
                heads.append(data)
                self._wire.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n")
                self._wire.hand_over(Speaker(self._wire))

            def eof(self) -> None: ...

            def writable(self, is_writable: bool) -> None: ...

            def lost(self, reason: object) -> None: ...

            def close(self) -> None: ...

        peer = MeshedPeer(network, SERVER_ID, First)
        network.name(WEB, peer.addr, meta=identity(hint=HINT_H2))
        reader, writer = await asyncio.open_connection(*network.start())
        writer.write(
            b"GET /chat HTTP/1.1\r\nHost: web.ns.svc.cluster.local\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ") and b"pgrade: chat" in head
        assert await reader.readexactly(6) == b"hello "
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"
        writer.write_eof()
        assert await reader.read() == b" bye"
        writer.close()
        assert b"GET /chat HTTP/1.1" in heads[0] and b"l5d-orig-proto" not in heads[0]
        assert len(peer.clients) == 2
        network.close()

    run(story)


def test_another_identity_is_never_spoken_to() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        stage = Answering("must not be reached")
        other = "other.ns.serviceaccount.identity.linkerd.cluster.local"
        peer = MeshedPeer(network, other, lambda wire: H1Server(wire, stage, ticking.reactor.clock))
        network.name(WEB, peer.addr, meta=identity())
        answer = await exchange(network.start(), GET)
        assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert f"l5d-proxy-error: endpoint {peer.addr}: client error (Connect)".encode() in answer
        assert not stage.requests
        network.close()

    run(story)


def test_a_peer_without_tls_is_never_spoken_to_plainly() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        got = bytearray()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.extend(await reader.read(65536))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            writer.close()

        network.name(WEB, await network.server(listen), meta=identity())
        answer = await exchange(network.start(), GET)
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert got.startswith(b"\x16\x03") and b"GET" not in got
        network.close()

    run(story)


async def http_1_by_header(ticking: Ticking, override: str) -> tuple[TransportHeader, list[Any]]:
    network = Network(ticking)
    stage = Answering("direct")
    peer = MeshedPeer(network, SERVER_ID, lambda wire: H1Server(wire, stage, ticking.reactor.clock), is_direct=True)
    meta = identity(opaque_transport_port=peer.addr.port, authority_override=override)
    network.name(WEB, Addr("127.0.0.1", 4321), meta=meta)
    assert (await exchange(network.start(), GET)).endswith(b"direct")
    assert [client.alpn for client in peer.clients] == ["transport.l5d.io/v1"]
    assert stage.requests[0].version == HTTP_1_1
    network.close()
    return peer.headers[0], stage.requests


@pytest.mark.acceptance("TAGT-05", "TAGT-06")
def test_the_transport_header_says_http_1() -> None:
    async def story(ticking: Ticking) -> None:
        header, requests = await http_1_by_header(ticking, "")
        assert header == TransportHeader(4321, "", "http/1")
        assert requests[0].authority == b"web.ns.svc.cluster.local"
        header, requests = await http_1_by_header(ticking, "foo.bar.example.com:5555")
        assert header == TransportHeader(5555, "foo.bar.example.com", "http/1")
        assert requests[0].authority == b"foo.bar.example.com:5555"
        header, _ = await http_1_by_header(ticking, "foo.bar.example.com")
        assert header == TransportHeader(4321, "", "http/1")

    run(story)


async def opaque_by(ticking: Ticking, meta: EndpointMeta, peer_kind: bool) -> tuple[MeshedPeer, bytes]:
    """One opaque connection to the endpoint 127.0.0.1:4321, whose proxy is a MeshedPeer on another port."""
    network = Network(ticking)
    peer = MeshedPeer(network, SERVER_ID, Speaker, is_direct=peer_kind)
    if meta.opaque_transport_port:
        meta = identity(opaque_transport_port=peer.addr.port, authority_override=meta.authority_override)
    network.fake.policies[DST] = Watch(balance_policy(protocol=OPAQUE))
    network.fake.names[WEB] = Watch(reset({Addr("127.0.0.1", 4321): meta}))
    network.start()
    near = network.redirect(DST)
    reader, writer = await asyncio.open_connection(sock=near)
    assert await asyncio.wait_for(reader.readexactly(6), DEADLINE_S) == b"hello "  # the server speaks first
    writer.write(b"payload")
    writer.write_eof()
    rest = await asyncio.wait_for(reader.read(), DEADLINE_S)
    writer.close()
    network.close()
    return peer, rest


@pytest.mark.acceptance("TAGT-02", "TAGT-03", "TAGT-04")
def test_opaque_bytes_follow_a_transport_header() -> None:
    async def story(ticking: Ticking) -> None:
        for override, header in (
            ("", TransportHeader(4321)),
            ("foo.bar.example.com:5555", TransportHeader(5555, "foo.bar.example.com")),
            ("foo.bar.example.com", TransportHeader(4321)),
        ):
            peer, rest = await opaque_by(ticking, identity(opaque_transport_port=1, authority_override=override), True)
            assert peer.headers == [header] and rest == b"payload bye"
            assert peer.clients[0].client_id == CLIENT_ID

    run(story)


@pytest.mark.acceptance("TAGT-01")
def test_without_an_identity_the_endpoint_itself_is_dialled_and_nothing_is_put_before() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        got = bytearray()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.extend(await reader.read())
            writer.close()

        server = await network.server(listen)
        network.fake.policies[DST] = Watch(balance_policy(protocol=OPAQUE))
        network.fake.names[WEB] = Watch(reset({server: EndpointMeta(opaque_transport_port=4143)}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(b"payload")
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
        assert got == b"payload"
        writer.close()
        network.close()

    run(story)


def test_a_peer_that_does_not_select_our_protocol_gets_no_header() -> None:
    async def story(ticking: Ticking) -> None:
        peer, rest = await opaque_by(ticking, identity(opaque_transport_port=1), False)
        assert peer.headers == [] and peer.clients[0].alpn == "" and rest == b"payload bye"

    run(story)


def test_a_killed_replica_leaves_the_others_to_carry_on() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)

        def replica(name: str) -> MeshedPeer:
            return MeshedPeer(network, SERVER_ID, lambda wire: H2Server(wire, Answering(name), ticking.reactor.clock))

        peers = [replica(name) for name in ("a", "b", "c")]
        network.name(WEB, *[peer.addr for peer in peers], meta=identity(hint=HINT_H2))
        proxy = network.start()
        assert (await exchange(proxy, GET)).startswith(b"HTTP/1.1 200 ")
        await until(lambda: all(peer.clients for peer in peers), "every endpoint is connected to ahead")
        names = {(await exchange(proxy, GET))[-1:] for _ in range(40)}
        assert names == {b"a", b"b", b"c"}
        peers[0].kill()
        await asyncio.sleep(0.02)
        answers = [await exchange(proxy, GET) for _ in range(40)]
        assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
        assert {answer[-1:] for answer in answers} == {b"b", b"c"}
        network.close()

    run(story)


@pytest.mark.acceptance("RECON-01")
def test_a_dead_endpoint_is_connected_to_again_and_requests_wait_for_it() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        peer = MeshedPeer(network, SERVER_ID, lambda wire: H2Server(wire, Answering("back"), ticking.reactor.clock))
        network.name(WEB, peer.addr, meta=identity(hint=HINT_H2))
        proxy = network.start()
        assert (await exchange(proxy, GET)).startswith(b"HTTP/1.1 200 ")
        for session in peer.sessions:
            session.abort(Reason.CONNECTION_RESET)
        await asyncio.sleep(0.02)
        waiting = asyncio.create_task(exchange(proxy, GET))
        await asyncio.sleep(0.02)
        assert len(peer.clients) == 1 and not waiting.done()
        ticking.pass_time(0.15)
        assert (await waiting).endswith(b"back") and len(peer.clients) == 2
        network.close()

    run(story)


async def kept_open(ticking: Ticking, policy: ClientPolicy, meta: EndpointMeta) -> tuple[bytes, bool]:
    """What a client gets when the peer answers 502 with `l5d-proxy-connection: close`, and whether its connection is
    closed.
    """
    network = Network(ticking)
    fields = ((b"l5d-proxy-connection", b"close"), (b"l5d-proxy-error", b"why"))
    stage = Answering("no", 502, fields)
    peer = MeshedPeer(network, SERVER_ID, lambda wire: H1Server(wire, stage, ticking.reactor.clock))
    network.fake.names[WEB] = Watch(reset({peer.addr: meta}))
    forward = forward_policy(default_meta("endpoint"), peer.addr, meta)
    network.fake.policies[DST] = Watch(policy if policy.protocol == HTTP_1 else forward)
    network.start()
    reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
    writer.write(GET.replace(b"Connection: close\r\n", b""))
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
    assert await reader.readexactly(2) == b"no"
    has_ended = False
    try:
        has_ended = await asyncio.wait_for(reader.read(), 0.1) == b""
    except TimeoutError:
        pass
    writer.close()
    network.close()
    return head, has_ended


@pytest.mark.acceptance("EPHDR-01")
def test_a_meshed_forward_may_close_the_client_and_a_balanced_endpoint_may_not() -> None:
    async def story(ticking: Ticking) -> None:
        head, has_ended = await kept_open(ticking, balance_policy(), identity())
        assert head.startswith(b"HTTP/1.1 502 ") and b"l5d-" not in head and b"connection: close" in head.lower()
        assert has_ended
        head, has_ended = await kept_open(ticking, balance_policy(protocol=HTTP_1), identity())
        assert head.startswith(b"HTTP/1.1 502 ") and b"l5d-" not in head and not has_ended

    run(story)
