"""TLS connections over real sockets: half-close both ways, large writes, a slow reader, ends of every kind."""

from __future__ import annotations

import socket
from typing import Any

from proxy.core.addr import Addr
from proxy.core.dial import DialOptions
from proxy.core.meter import Meter
from proxy.core.reason import Reason
from proxy.tls.credentials import Credentials
from proxy.tls.peer import TlsPeer, TlsTarget
from proxy.tls.session import Session, dial_tls, serve_tls
from tests.kit.certificates import Authority, issue, the_ca
from tests.kit.sockets import Recorder, Ticking, run, until

SERVER = "web.ns.serviceaccount.identity.linkerd.cluster.local"
CLIENT = "client.ns.serviceaccount.identity.linkerd.cluster.local"


def credentials(name: str, ca: Authority | None = None, *, is_certified: bool = True) -> Credentials:
    ca = ca or the_ca()
    made = Credentials(name, ca.pem)
    if is_certified:
        leaf = issue(ca, name)
        made.install(leaf.certificate_der, [], leaf.key_der, 2e9)
    return made


class Pair:
    """One TLS connection: dialled by `client`, served by `server`."""

    def __init__(self, ticking: Ticking, server: Credentials, client: Credentials, **kinds: Any) -> None:
        self.is_direct = kinds.get("is_direct", False)
        self.peers: list[TlsPeer] = []
        self.server_failures: list[str] = []
        self.client_failures: list[str] = []
        self.meters = (Meter(), Meter())
        self.server: Any = None
        self.sessions: list[Session] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        addr = Addr(*self._listener.getsockname())
        options = DialOptions(
            meter=self.meters[1], first_bytes=kinds.get("first_bytes", b""), on_failed=self.client_failures.append
        )
        target = TlsTarget(client.client_context(kinds.get("offers", False)), SERVER, kinds.get("server_id", SERVER))
        self.client: Any = dial_tls(ticking.reactor, addr, target, Recorder, options)
        accepted, _ = self._listener.accept()
        accepted.setblocking(False)
        self._listener.close()
        context = server.server_context(self.is_direct)
        serve_tls(ticking.reactor, accepted, context, self._established, self.server_failures.append, self.meters[0])

    def _established(self, session: Session, peer: TlsPeer) -> Recorder:
        self.sessions.append(session)
        self.peers.append(peer)
        server = self.server = Recorder(session)
        return server

    async def open(self) -> None:
        await until(lambda: self.server is not None, "server side open")

    async def gone(self) -> None:
        await until(lambda: self.client.lost_for and (self.server is None or self.server.lost_for), "both ends lost")


def test_half_close_and_backpressure() -> None:
    async def story(ticking: Ticking) -> None:
        pair = Pair(ticking, credentials(SERVER), credentials(CLIENT))
        client = pair.client
        client.wire.write(b"the request")
        client.wire.end()
        await until(lambda: pair.server and pair.server.has_eof)
        server = pair.server
        assert pair.peers == [TlsPeer(CLIENT, "")]
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
