"""An outbound proxy on a real loop, with lookups that the test answers, and with servers and clients around it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from proxy.balance.endpoints import ABSENT, Resolution, reset
from proxy.config import Config, parse
from proxy.core.address.addr import Addr, addr
from proxy.core.codec import Codec, Wire
from proxy.core.connection.drain import Drain
from proxy.core.failure.reason import Reason
from proxy.core.watch import Absent, Watch
from proxy.http.exchange import Exchange, Stage
from proxy.http.h2.server import H2Server
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import field
from proxy.metrics.registry import Registry
from proxy.outbound.runtime import Lookups
from proxy.outbound.stack import Outbound
from proxy.policy.client import (
    DETECT,
    FIRST_AVAILABLE,
    OPAQUE,
    Backend,
    Balance,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    Distribution,
    RouteBackend,
    StreamRoute,
)
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta, default_meta
from proxy.policy.profiles.profile import Profile
from proxy.tls.handshake import serve_tls
from proxy.tls.peer import TlsPeer, TlsServing
from proxy.transport.detection.first_bytes import FirstBytes, Opened, Unreadable
from proxy.transport.detection.header import HEADER, TransportHeader
from proxy.transport.listener import Listener, ListenOptions
from proxy.transport.plain import serve_plain
from tests.kit.certificates import credentials
from tests.kit.environment import environment
from tests.kit.http1 import DEADLINE_S, Message, Serve, http1_app, ok
from tests.kit.http2 import Http2Client
from tests.kit.sockets import Ticking, tcp_pair

SERVICE = Meta("core", "Service", "web", "ns", port=80)


def config(**changes: str | None) -> Config:
    """A workload's configuration that permits loopback; `changes` as in tests.kit.environment."""
    short = {"OUTBOUND_HTTP_FAILFAST_TIMEOUT": "300ms", "OUTBOUND_TCP_FAILFAST_TIMEOUT": "300ms"}
    env = environment(**{**short, **changes})
    ours = {"ALLOW_LOOPBACK": "true", "OUTBOUND_EXPLICIT": "true", "OUTBOUND_SEARCH": "ns.svc.cluster.local"}
    return parse({**{f"SPONSON_{name}": value for name, value in ours.items()}, **env})


def balance_policy(
    path: str = "web.ns.svc.cluster.local:80", protocol: str = DETECT, meta: Meta = SERVICE
) -> ClientPolicy:
    """The policy that the real controller sends for a plain service."""
    distribution = Distribution(FIRST_AVAILABLE, (RouteBackend(Backend(meta, Balance(path))),))
    routes = (ClientRoute(default_meta("http"), (), (ClientRule((), (), distribution),)),)
    opaque = (StreamRoute(default_meta("opaq"), distribution),)
    return ClientPolicy(
        meta, protocol, () if protocol == OPAQUE else routes, () if protocol == OPAQUE else routes, opaque
    )


class FakeLookups:
    """The control plane's answers, by question; `asked` keeps the questions, `closed` those that were cancelled."""

    def __init__(self) -> None:
        self.profiles: dict[str, Watch[Profile | Absent | None]] = {}
        self.policies: dict[Addr | str, Watch[ClientPolicy | Absent | None]] = {}
        self.names: dict[str, Watch[Resolution[EndpointMeta]]] = {}
        self.hosts: dict[str, Watch[Resolution[EndpointMeta]]] = {}
        self.asked: list[tuple[str, Addr | str]] = []
        self.closed: list[tuple[str, Addr | str]] = []

    def lookups(self) -> Lookups:
        return Lookups(
            lambda path: self._answer("profile", path, self.profiles, Absent("no profile")),
            lambda target: self._answer("policy", target, self.policies, Absent("not found")),
            lambda path: self._answer("endpoints", path, self.names, Resolution(ABSENT)),
            lambda path: self._answer("resolve", path, self.hosts, Resolution("failed", {}, "no such name")),
        )

    def _answer(self, kind: str, question: Any, answers: dict[Any, Any], otherwise: Any) -> Any:
        self.asked.append((kind, question))
        source = answers.get(question) or Watch(otherwise)
        watch: Watch[Any] = Watch(source.value, lambda: self._closed(kind, question, source, watch))
        source.subscribe(watch.set)
        return watch

    def _closed(self, kind: str, question: Any, source: Watch[Any], watch: Watch[Any]) -> None:
        source.unsubscribe(watch.set)
        self.closed.append((kind, question))


class Network:
    """One outbound proxy behind one explicit listener. What it dials are servers of the test."""

    def __init__(self, ticking: Ticking, **changes: str | None) -> None:
        self.ticking = ticking
        self.reactor = ticking.reactor
        self.config = config(**changes)
        self.fake = FakeLookups()
        self.lookups: Callable[[], Lookups] = self.fake.lookups
        self.drain = Drain()
        self.registry = Registry(self.reactor.clock)
        self.credentials: Any = credentials("client.ns.serviceaccount.identity.linkerd.cluster.local")
        self._closers: list[Callable[[], Any]] = []
        self.outbound: Outbound
        self.listener: Listener

    def start(self) -> Addr:
        """Returns where clients connect to."""
        lookups = self.lookups()
        self.outbound = Outbound(self.reactor, self.config, self.credentials, lookups, self.registry, self.drain)
        self.listener = Listener(self.reactor, addr("127.0.0.1", 0), self.outbound.accept, ListenOptions())
        self._closers.append(self.listener.close)
        self.outbound.runtime.here.listens(self.listener.addr, "outbound")
        return self.listener.addr

    async def server(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any], port: int = 0) -> Addr:
        server = await asyncio.start_server(serve, "127.0.0.1", port)
        self._closers.append(server.close)
        return addr(*server.sockets[0].getsockname()[:2])

    def name(self, path: str, *addrs: Addr, meta: EndpointMeta | None = None) -> Watch[Resolution[EndpointMeta]]:
        """A service of the mesh with these endpoints, which may change later."""
        known = meta or EndpointMeta()
        self.fake.policies.setdefault(path, Watch(balance_policy(path)))
        return self.fake.names.setdefault(path, Watch(reset(dict.fromkeys(addrs, known))))

    def closes(self, closer: Callable[[], Any]) -> None:
        """`closer` is called when the test is over."""
        self._closers.append(closer)

    def redirect(self, target: Addr) -> socket.socket:
        """A client's end of a connection that a redirect rule brought here instead of to `target`; non-blocking."""
        near, far = tcp_pair()
        self.outbound.redirected(far, target)
        return near

    def metrics(self) -> str:
        return self.registry.render().decode()

    def close(self) -> None:
        for closer in self._closers:
            closer()
        self.drain.begin(lambda: None)
        self.outbound.close()


def http_server(name: str, seen: list[bytes] | None = None, body: bytes = b"") -> Serve:
    """Answers every request with this name; `seen` gets the requests."""

    def answer(request: Message) -> bytes:
        if seen is not None:
            seen.append(request.raw)
        return ok(body or name.encode(), b"X-Server: " + name.encode())

    return http1_app(answer)


async def ask(network: Network, target: Addr, request: bytes) -> bytes:
    """The answer to one request with `connection: close`, on a redirected connection of its own."""
    reader, writer = await asyncio.open_connection(sock=network.redirect(target))
    writer.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
    writer.close()
    return answer


async def exchange(where: Addr, request: bytes, timeout_s: float = 5.0, *, ends: bool = False) -> bytes:
    """Send a request on a connection of its own, with an end behind it if `ends`, and read until the peer ends."""
    reader, writer = await asyncio.open_connection(where.ip, where.port)
    try:
        writer.write(request)
        if ends:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(-1), timeout_s)
    finally:
        writer.close()


class Answering:
    """A stage that answers every request itself, and keeps their heads."""

    def __init__(self, name: str, status: int = 200, fields: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.requests: list[RequestHead] = []
        self._body = name.encode()
        self._status = status
        self._fields = fields

    def dispatch(self, exchange: Exchange) -> None:
        self.requests.append(exchange.request)
        fields = [field(b"content-length", b"%d" % len(self._body)), *(field(*one) for one in self._fields)]
        head = ResponseHead(self._status, fields, len(self._body))
        head.version = exchange.request.version
        head.has_l5d = any(name.startswith(b"l5d-") for name, _ in self._fields)
        exchange.reply(head, Reason.COMPLETE, body=self._body)


class MeshedPeer:
    """Another workload's proxy: it accepts mesh TLS, a transport header if that was negotiated, and then runs the
    codec it is given.
    """

    def __init__(
        self, network: Network, name: str, make_codec: Callable[[Wire], Codec], *, is_direct: bool = False
    ) -> None:
        self.clients: list[TlsPeer] = []
        self.headers: list[TransportHeader] = []
        self.failures: list[str] = []
        self.sessions: list[Any] = []
        self._reactor = network.reactor
        self._credentials = credentials(name)
        self._make_codec = make_codec
        self._is_direct = is_direct
        self._listener = Listener(network.reactor, addr("127.0.0.1", 0), self._accept)
        self.addr = self._listener.addr
        network.closes(self.close)

    def _accept(self, sock: socket.socket, peer: Addr) -> None:
        context = self._credentials.server_context(self._is_direct)
        serve_tls(
            self._reactor, sock, TlsServing(context), self._established, lambda reason, text: self.failures.append(text)
        )

    def _established(self, session: Any, peer: TlsPeer) -> Codec:
        self.sessions.append(session)
        self.clients.append(peer)
        if peer.alpn:

            def read(found: tuple[TransportHeader, bytes] | Unreadable, first: bytes) -> Opened | Reason:
                if isinstance(found, Unreadable):
                    self.failures.append(found.text)
                    return found.reason
                self.headers.append(found[0])
                return Opened(self._make_codec(session), found[1])

            return FirstBytes(session, self._reactor.wheel, HEADER, 5.0, read)
        return self._make_codec(session)

    def kill(self) -> None:
        """End the peer at once, with every connection."""
        self._listener.close()
        for session in self.sessions:
            session.abort(Reason.CONNECTION_RESET)

    def close(self) -> None:
        self._listener.close()
        for session in self.sessions:
            session.abort(Reason.SHUTDOWN)


class H2Peer:
    """A plain HTTP/2 server that can be killed."""

    def __init__(self, network: Network, stage: Stage) -> None:
        self._connections: list[Any] = []

        def accept(sock: socket.socket, peer: Addr) -> None:
            clock = network.reactor.clock
            self._connections.append(serve_plain(network.reactor, sock, lambda wire: H2Server(wire, stage, clock)))

        self._listener = Listener(network.reactor, addr("127.0.0.1", 0), accept)
        self.addr = self._listener.addr
        network.closes(self.kill)

    def kill(self) -> None:
        self._listener.close()
        for connection in self._connections:
            connection.abort(Reason.CONNECTION_RESET)


def h2_server(network: Network, stage: Stage) -> H2Peer:
    return H2Peer(network, stage)


async def h2_request(
    sock: socket.socket, method: str, authority: str, path: str, more: list[tuple[str, str]] | None = None
) -> tuple[dict[str, str], bytes]:
    """One request on a connection of its own, by another implementation of HTTP/2: the response's headers and body."""
    reader, writer = await asyncio.open_connection(sock=sock)
    client = Http2Client()
    answered = client.answers[client.get(path, *(more or []), method=method, authority=authority)]
    while not answered.is_over:
        writer.write(client.take())
        client.feed(await asyncio.wait_for(reader.read(65536), DEADLINE_S))
    assert not answered.has_eof and answered.reset is None
    writer.close()
    return dict(answered.headers), answered.body


def hello_bytes(name: str) -> bytes:
    """A real ClientHello with this name as SNI."""
    outgoing = ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()
