"""TLS connections over real sockets: half-close in both directions, large writes, a slow reader, ends of every kind."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import struct
from typing import Any

import pytest
from cryptography import x509

from proxy.core.address.addr import Addr
from proxy.core.connection.dial import DialOptions
from proxy.core.connection.meter import Meter
from proxy.core.failure.reason import Reason
from proxy.tls.context import load_chain
from proxy.tls.credentials import Credentials
from proxy.tls.handshake import TlsConnection, dial_tls, serve_tls
from proxy.tls.hello import NOT_TLS, Hello, judge_hello
from proxy.tls.peer import TlsPeer, TlsServing, TlsTarget
from proxy.transport.detection.peek import peek
from proxy.transport.plain import serve_plain
from tests.kit.certificates import Leaf, credentials, issue, make_ca, the_ca
from tests.kit.sockets import Recorder, Ticking, run, tcp_pair, until

SERVER = "web.ns.serviceaccount.identity.linkerd.cluster.local"
CLIENT = "client.ns.serviceaccount.identity.linkerd.cluster.local"
DAY = datetime.timedelta(days=1)


class Pair:
    """One TLS connection: dialled by `client`, served by `server`."""

    def __init__(self, ticking: Ticking, server: Credentials, client: Credentials, **kinds: Any) -> None:
        self.is_direct = kinds.get("is_direct", False)
        self.peers: list[TlsPeer] = []
        self.server_failures: list[str] = []
        self.server_reasons: list[Reason] = []
        self.client_failures: list[str] = []
        self.meters = (Meter(), Meter())
        self.server: Any = None
        self.sessions: list[TlsConnection] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        addr = Addr(*self._listener.getsockname())
        options = DialOptions(
            meter=self.meters[1], first_bytes=kinds.get("first_bytes", b""), on_failed=self.client_failures.append
        )
        context = client.client_context(kinds.get("offers", False))
        target = TlsTarget(context, SERVER, kinds.get("server_id", SERVER), client.revoked)
        self.client: Any = dial_tls(ticking.reactor, addr, target, Recorder, options)
        accepted, _ = self._listener.accept()
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as a listener does
        self._listener.close()
        context = server.server_context(self.is_direct)
        on_established = kinds.get("on_established", self._established)
        serving = TlsServing(context, server.revoked)
        serve_tls(ticking.reactor, accepted, serving, on_established, self._failed, self.meters[0])

    def _failed(self, reason: Reason, text: str) -> None:
        self.server_reasons.append(reason)
        self.server_failures.append(text)

    def _established(self, session: TlsConnection, peer: TlsPeer) -> Recorder:
        self.sessions.append(session)
        self.peers.append(peer)
        server = self.server = Recorder(session)
        return server

    async def open(self) -> None:
        await until(lambda: self.server is not None, "server side open")

    async def has_come(self, data: bytes) -> None:
        await until(lambda: self.server.received == data, f"{data!r} arrives")

    async def end(self) -> None:
        self.client.wire.end()
        self.server.wire.end()
        await self.gone()

    async def gone(self) -> None:
        await until(lambda: self.client.lost_for and (self.server is None or self.server.lost_for), "both ends lost")


async def has_heard(codec: Recorder, data: bytes) -> None:
    await until(lambda: codec.received == data, "all that was sent arrives")


def test_half_close_and_backpressure() -> None:
    async def story(ticking: Ticking) -> None:
        pair = Pair(ticking, credentials(SERVER), credentials(CLIENT))
        client = pair.client
        client.wire.write(b"the request")
        client.wire.end()
        await until(lambda: pair.server and pair.server.has_eof)
        server = pair.server
        assert [len(peer.serial) > 8 for peer in pair.peers] == [True]
        assert [peer._replace(serial="") for peer in pair.peers] == [TlsPeer(CLIENT, "")]
        assert server.received == b"the request" and not client.has_eof
        client.wire.pause_reading()
        piece = bytes(range(256)) * 256
        for _ in range(160):
            server.wire.write(piece)
        await until(lambda: server.levels == [False])
        client.wire.resume_reading()
        await until(lambda: server.levels == [False, True])
        server.wire.end()
        await until(lambda: client.has_eof)
        assert bytes(client.received) == piece * 160
        await pair.gone()
        assert client.lost_for == [Reason.COMPLETE] == server.lost_for
        served, dialled = pair.meters
        assert served.opened == dialled.opened == 1 and served.open_count == dialled.open_count == 0
        assert served.read_bytes == dialled.written_bytes == len(b"the request")
        assert served.written_bytes == dialled.read_bytes == len(piece) * 160
        assert served.closed == dialled.closed == {"": 1}

    run(story)


def test_what_a_peer_said_before_it_reset_us_is_heard_when_a_write_tells_of_the_reset() -> None:
    async def story(ticking: Ticking) -> None:
        pair = Pair(ticking, credentials(SERVER), credentials(CLIENT))
        await pair.open()
        server, client = pair.server, pair.client
        server.wire.write(b"begun, ")
        await has_heard(client, b"begun, ")
        server.wire.write(b"an early answer")
        server.wire.flush()
        server.wire.abort(Reason.CONNECTION_RESET)  # both before the loop looks at the client's socket again
        client.wire.write(b"more of the request")
        client.wire.flush()
        await until(lambda: client.lost_for)
        assert client.received == b"begun, an early answer" and client.lost_for == [Reason.CONNECTION_RESET]

    run(story)


@pytest.mark.acceptance("TLSD-05")
def test_mutual_tls_and_plain_text_and_a_foreign_name() -> None:
    """A name that is not ours, and bytes that are not TLS, are left as they came: `judge_hello` decides, and no byte
    is taken.
    """

    async def story(ticking: Ticking) -> None:
        for first, verdict in (
            (b"GET / HTTP/1.1\r\n\r\n", NOT_TLS),
            (client_hello("other.ns.local"), "other.ns.local"),
        ):
            client, accepted = tcp_pair()
            client.send(first)
            looks: list[Any] = []
            peek(ticking.reactor, accepted, judge_hello, 1.0, looks.append)
            await until(looks.copy)
            found = looks[0].verdict
            assert (found.sni if isinstance(found, Hello) else found) == verdict
            codec: Any = serve_plain(ticking.reactor, accepted, Recorder).codec
            await has_heard(codec, first)
            codec.wire.abort(Reason.CONNECTION_RESET)
            await until(codec.lost_for.copy)
            client.close()
        pair = Pair(ticking, credentials(SERVER), credentials(CLIENT))
        await pair.open()
        assert [peer._replace(serial="") for peer in pair.peers] == [TlsPeer(CLIENT, "")]
        await pair.end()

    run(story)


@pytest.mark.acceptance("TLSD-01")
@pytest.mark.parametrize("first_record_bytes", [0, 1, 100])
def test_a_hello_is_peeked_and_then_terminated_with_all_its_bytes(first_record_bytes: int) -> None:
    """The ClientHello comes in one record, or in two (row B27: such a hello used to go to the app as it was)."""

    async def story(ticking: Ticking) -> None:
        context = credentials(CLIENT).client_context(True)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(to_client, to_server, server_hostname="example.com")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = to_server.read()
        if first_record_bytes:
            cut = 5 + first_record_bytes
            hello = b"".join(hello[:3] + len(part).to_bytes(2, "big") + part for part in (hello[5:cut], hello[cut:]))
        client, accepted = tcp_pair()
        looks: list[Any] = []
        peek(ticking.reactor, accepted, judge_hello, 5.0, looks.append)
        for at in range(0, len(hello), 50):
            client.send(hello[at : at + 50])
            await asyncio.sleep(0.001)
        await until(lambda: looks)
        assert looks[0].verdict == Hello("example.com", (b"transport.l5d.io/v1",))
        servers: list[Any] = []

        def on_established(session: TlsConnection, peer: TlsPeer) -> Recorder:
            servers.append(Recorder(session))
            recorder: Recorder = servers[0]
            return recorder

        serve_tls(
            ticking.reactor,
            accepted,
            TlsServing(credentials(SERVER).server_context(True)),
            on_established,
            lambda reason, text: pytest.fail(text),
        )
        loop = asyncio.get_running_loop()
        to_client.write(await loop.sock_recv(client, 65536))
        tls.do_handshake()
        tls.write(b"with the handshake's end")
        client.send(to_server.read())
        await until(lambda: servers and servers[0].received == b"with the handshake's end")
        client.close()
        await until(lambda: servers[0].lost_for)

    run(story)


def client_hello(name: str, *protocols: str) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if protocols:
        context.set_alpn_protocols(list(protocols))
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def test_the_transport_header_is_sent_first_if_the_server_selects_it() -> None:
    async def story(ticking: Ticking) -> None:
        for is_direct, expected in ((True, b"headerbody"), (False, b"body")):
            kinds = {"offers": True, "first_bytes": b"header", "is_direct": is_direct}
            pair = Pair(ticking, credentials(SERVER), credentials(CLIENT), **kinds)
            pair.client.wire.write(b"body")
            await pair.open()
            await pair.has_come(expected)
            assert [peer._replace(serial="") for peer in pair.peers] == [
                TlsPeer(CLIENT, "transport.l5d.io/v1" if is_direct else "")
            ]
            await pair.end()

    run(story)


def test_alpn_on_the_direct_port() -> None:
    """A client that offers no protocol gets none and sends no header. One that offers only others is refused on the
    direct port, as by rustls; elsewhere they are ignored.
    """

    async def story(ticking: Ticking) -> None:
        pair = Pair(ticking, credentials(SERVER), credentials(CLIENT), is_direct=True, first_bytes=b"header")
        pair.client.wire.write(b"body")
        await pair.open()
        await pair.has_come(b"body")
        await pair.end()
        served = Served(ticking, client_hello(SERVER, "h2", "http/1.1"), is_direct=True)
        assert await served.failed() == "callback failed"
        assert served.heard[:1] == b"\x15" and served.heard[5:] == b"\x02\x78", "fatal: no_application_protocol"
        client = credentials(CLIENT)
        client.client_context(False).set_alpn_protocols(["h2", "http/1.1"])
        pair = Pair(ticking, credentials(SERVER), client)
        await pair.open()
        assert [peer._replace(serial="") for peer in pair.peers] == [TlsPeer(CLIENT, "")]
        await pair.end()

    run(story)


def test_a_client_without_a_certificate_is_nobody() -> None:
    async def story(ticking: Ticking) -> None:
        pair = Pair(ticking, credentials(SERVER), credentials(CLIENT, is_certified=False))
        await pair.open()
        assert pair.peers == [TlsPeer("", "")]
        await pair.end()

    run(story)


def test_a_client_of_other_anchors_is_refused() -> None:
    async def story(ticking: Ticking) -> None:
        stranger = Credentials(CLIENT, the_ca().pem)
        context = stranger.client_context(False)
        leaf = issue(make_ca("another root"), CLIENT)
        load_chain(context, [leaf.certificate_der], leaf.key_der)
        pair = Pair(ticking, credentials(SERVER), stranger)
        await pair.gone()
        await until(lambda: pair.server_failures)
        assert pair.server is None
        assert pair.server_failures == ["certificate verify failed: unable to get local issuer certificate"]
        # TLS 1.3: the client's handshake ends before the server has read its certificate; a refusal comes as an alert.
        assert pair.client.lost_for == [Reason.PROTOCOL_ERROR]

    run(story)


def test_a_client_whose_certificate_is_an_authority_is_refused() -> None:
    async def story(ticking: Ticking) -> None:
        client = Credentials(CLIENT, the_ca().pem)
        context = client.client_context(False)
        leaf = issue(the_ca(), CLIENT, is_ca=True)
        load_chain(context, [leaf.certificate_der], leaf.key_der)
        pair = Pair(ticking, credentials(SERVER), client)
        await until(lambda: pair.server_failures)
        assert pair.server is None
        assert pair.server_failures == ["the certificate is an authority's (CA:TRUE), not a workload's"]
        await until(lambda: pair.client.lost_for)

    run(story)


def presenting(leaf: Leaf) -> Credentials:
    """Credentials that would not accept this certificate themselves, like those of a peer that does not check."""
    made = credentials(SERVER)
    for is_direct in (False, True):
        load_chain(made.server_context(is_direct), [leaf.certificate_der], leaf.key_der)
    return made


@pytest.mark.parametrize(
    ("server", "text"),
    [
        ("another root", "certificate verify failed: "),
        ("another name", "certificate does not match TLS identity"),
        ("no certificate", "alert "),
        ("an authority", "the certificate is an authority's (CA:TRUE), not a workload's"),
        ("expired", "certificate verify failed: certificate has expired: the clock here says 20"),
        ("of tomorrow", "certificate verify failed: certificate is not yet valid: the clock here says 20"),
        ("an escape", "the certificate has a name that is no identity: URI 'spiffe://foo/\\x1b[2J'"),
    ],
)
def test_a_server_that_is_not_who_it_should_be(server: str, text: str) -> None:
    async def story(ticking: Ticking) -> None:
        if server == "another root":
            made = credentials(SERVER, make_ca("another root"))
        elif server == "another name":
            made = credentials("other.ns.local")
        elif server == "an authority":
            made = presenting(issue(the_ca(), SERVER, is_ca=True))
        elif server == "expired":
            made = presenting(issue(the_ca(), SERVER, age=3 * DAY, lifetime=DAY))
        elif server == "of tomorrow":
            made = presenting(issue(the_ca(), SERVER, age=-DAY))
        elif server == "an escape":
            name = x509.UniformResourceIdentifier._init_without_validation("spiffe://foo/\x1b[2J")
            made = presenting(issue(the_ca(), SERVER, name))
        else:
            made = credentials(SERVER, is_certified=False)
        pair = Pair(ticking, made, credentials(CLIENT))
        pair.client.wire.write(b"a secret")
        await until(lambda: pair.client.lost_for)
        assert pair.client.lost_for == [Reason.CONNECT_FAILED]
        assert len(pair.client_failures) == 1 and text in pair.client_failures[0]
        assert pair.meters[1].opened == 0 and pair.meters[1].closed == {}
        await until(lambda: pair.server_failures or (pair.server and pair.server.lost_for))
        assert pair.server is None or not pair.server.received

    run(story)


def test_a_server_name_that_differs_from_the_server_id() -> None:
    async def story(ticking: Ticking) -> None:
        server = Credentials(SERVER, the_ca().pem, "spiffe://root.linkerd/web")
        leaf = issue(the_ca(), "other.ns.local", "SPIFFE://root.linkerd/web")
        server.install(leaf.certificate_der, [], leaf.key_der, 2e9)
        pair = Pair(ticking, server, credentials(CLIENT), server_id="spiffe://root.linkerd/web")
        await pair.open()
        await pair.end()

    run(story)


def test_certificates_rotate_under_open_connections() -> None:
    async def story(ticking: Ticking) -> None:
        server, client = credentials(SERVER), credentials(CLIENT)
        old = Pair(ticking, server, client)
        await old.open()
        leaf = issue(the_ca(), CLIENT)
        client.install(leaf.certificate_der, [], leaf.key_der, 3e9)
        leaf = issue(the_ca(), SERVER, "second.ns.local")
        server.install(leaf.certificate_der, [], leaf.key_der, 3e9)
        new = Pair(ticking, server, client, server_id="second.ns.local")
        await new.open()
        for pair in (old, new):
            pair.client.wire.write(b"still here")
            await pair.has_come(b"still here")
            await pair.end()

    run(story)


def test_a_truncation_is_no_clean_end() -> None:
    """A FIN without close_notify gives `lost` with PEER_CLOSED and no `eof`; a reset gives CONNECTION_RESET, and its
    errno is counted.
    """

    async def story(ticking: Ticking) -> None:
        for is_reset in (False, True):
            pair = Pair(ticking, credentials(SERVER), credentials(CLIENT))
            pair.client.wire.write(b"half of a body")
            await pair.open()
            await pair.has_come(b"half of a body")
            pair.client.wire.abort(Reason.CONNECTION_RESET if is_reset else Reason.INTERNAL)
            await pair.gone()
            assert not pair.server.has_eof
            assert pair.server.lost_for == [Reason.CONNECTION_RESET if is_reset else Reason.PEER_CLOSED]
            assert pair.meters[0].closed == {"ECONNRESET" if is_reset else "": 1}

    run(story)


def test_a_polite_abort_says_close_notify() -> None:
    async def story(ticking: Ticking) -> None:
        pair = Pair(ticking, credentials(SERVER), credentials(CLIENT))
        await pair.open()
        pair.client.wire.write(b"goodbye")
        pair.client.wire.abort(Reason.SHUTDOWN)
        await until(lambda: pair.server.has_eof)
        assert pair.server.received == b"goodbye" and pair.client.lost_for == [Reason.SHUTDOWN]
        pair.server.wire.end()
        await pair.gone()

    run(story)


def test_output_before_an_abort_leaves_unless_the_peer_does_not_take_it() -> None:
    async def story(ticking: Ticking) -> None:
        for takes in (True, False):
            pair = Pair(ticking, credentials(SERVER), credentials(CLIENT))
            await pair.open()
            pair.client.wire.pause_reading()
            piece = bytes(1 << 20)
            for _ in range(16):
                pair.server.wire.write(piece)
            pair.server.wire.abort(Reason.PROTOCOL_ERROR)
            await asyncio.sleep(0.02)
            assert not pair.server.lost_for
            if takes:
                pair.client.wire.resume_reading()
                await has_heard(pair.client, piece * 16)
            else:
                ticking.pass_time(6)
                await until(pair.server.lost_for.copy)
                pair.client.wire.abort(Reason.CANCELLED)
            await pair.gone()
            assert pair.server.lost_for == [Reason.PROTOCOL_ERROR]

    run(story)


def test_a_dial_that_times_out_in_its_handshake_and_one_that_is_given_up() -> None:
    async def story(ticking: Ticking) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            failures: list[str] = []
            target = TlsTarget(credentials(CLIENT).client_context(False), SERVER, SERVER)
            options = DialOptions(connect_timeout_s=0.3, on_failed=failures.append)
            dials: list[Any] = [
                dial_tls(ticking.reactor, Addr(*silent.getsockname()), target, Recorder, options) for _ in range(3)
            ]
            dials[0].wire.abort(Reason.CANCELLED)
            await asyncio.sleep(0.03)
            dials[1].wire.abort(Reason.CANCELLED)
            ticking.pass_time(0.2)
            assert not dials[2].lost_for
            ticking.pass_time(0.2)
            await until(lambda: all(dial.lost_for for dial in dials))
            assert [dial.lost_for[0] for dial in dials] == [Reason.CANCELLED] * 2 + [Reason.CONNECT_TIMEOUT]
            assert failures == ["TLS handshake timed out"]

    run(story)


class Served:
    """A plain client of a TLS server: the first bytes that it has sent, and the result of the handshake."""

    def __init__(self, ticking: Ticking, first: bytes = b"", *, is_direct: bool = False) -> None:
        self.client, accepted = tcp_pair()
        self.client.send(first)
        self.failures: list[str] = []
        self.reasons: list[Reason] = []
        self.heard = b""
        context = credentials(SERVER).server_context(is_direct)
        serve_tls(ticking.reactor, accepted, TlsServing(context), self.never, self._failed)

    def _failed(self, reason: Reason, text: str) -> None:
        self.reasons.append(reason)
        self.failures.append(text)

    def never(self, session: TlsConnection, peer: TlsPeer) -> Recorder:
        raise AssertionError("a handshake that should have failed")

    async def failed(self) -> str:
        await until(lambda: self.failures)
        assert len(self.failures) == 1
        try:
            self.heard = self.client.recv(65536)
        except OSError:
            pass
        self.client.close()
        return self.failures[0]


def test_hostile_handshakes_end_counted_and_leave_nothing() -> None:
    async def story(ticking: Ticking) -> None:
        hello = client_hello(SERVER)
        served = Served(ticking, b"\x16\x03\x01\x00\x05garbage")
        assert await served.failed()
        served = Served(ticking, b"GET / HTTP/1.1\r\n\r\n")
        assert await served.failed() == "http request"
        for size in (0, 1, 5, 100, len(hello) - 1, len(hello)):
            served = Served(ticking, hello[:size])
            served.client.shutdown(socket.SHUT_WR)
            assert await served.failed() == "the peer closed its connection during the TLS handshake"
            assert served.reasons == [Reason.PEER_CLOSED]
            served = Served(ticking, hello[:size])
            await asyncio.sleep(0.005)
            served.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            served.client.close()
            assert "reset" in await served.failed() or "ECONNRESET" in served.failures[0]
            served = Served(ticking, hello[:size])
            await asyncio.sleep(0.005)
            ticking.pass_time(9.5)
            assert not served.failures
            ticking.pass_time(1)
            assert await served.failed() == "TLS handshake timed out"

    run(story)


def test_a_fault_of_whoever_makes_the_codec(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(ticking: Ticking) -> None:
        def fails(session: TlsConnection, peer: TlsPeer) -> Recorder:
            raise RuntimeError("a fault of ours")

        pair = Pair(ticking, credentials(SERVER), credentials(CLIENT), on_established=fails)
        await until(lambda: pair.client.lost_for)
        await until(pair.server_failures.copy)
        assert pair.server_failures == ["a fault of ours"] and pair.meters[0].opened == 0

    run(story)
