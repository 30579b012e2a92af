"""A workload in this process: the inbound side on a real listener, an app behind it, clients of every kind."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

from proxy.config import parse
from proxy.core.address.addr import Addr
from proxy.core.connection.drain import Drain
from proxy.core.watch import Absent, Watch
from proxy.inbound.gateway.onward import FindOnward
from proxy.inbound.http.profiles import FindProfile
from proxy.inbound.stack import Inbound, Lookups
from proxy.metrics import Registry
from proxy.policy.server import ServerPolicy
from proxy.tls.credentials import Credentials
from proxy.transport.detection.header import TransportHeader, encode
from proxy.transport.listener import Listener
from tests.kit import http2
from tests.kit.certificates import credentials
from tests.kit.environment import NAME, environment
from tests.kit.http1 import Client
from tests.kit.http2 import Answered
from tests.kit.sockets import Ticking, until

PEER = "web.ns.serviceaccount.identity.linkerd.cluster.local"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class App:
    """What the workload runs: it keeps what each of its connections sent, and answers each whole HTTP/1 head, or each
    chunk.
    """

    def __init__(self) -> None:
        self.saw: list[bytes] = []
        """What was received, one entry per connection."""
        self.has_eof: list[bool] = []
        self.greeting = b""
        """Sent first, as some servers do."""
        self.answer: Callable[[bytes], bytes | None] = lambda said: OK if said.endswith(b"\r\n\r\n") else None
        """The answer to what a connection has sent since the last one. None waits for more; `close` and `reset` end
        the connection.
        """
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def all_said(self) -> bytes:
        return b"".join(self.saw)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        index = len(self.saw)
        self.saw.append(b"")
        self.has_eof.append(False)
        pending = b""
        if self.greeting:
            writer.write(self.greeting)
        try:
            while data := await reader.read(65536):
                self.saw[index] += data
                pending += data
                answer = self.answer(pending)
                if answer == b"close":
                    break
                if answer == b"reset":
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                    return
                if answer is not None:
                    writer.write(answer)
                    pending = b""
            else:
                self.has_eof[index] = True
        except OSError:
            pass
        writer.close()


class Workload:
    """`policy` is the control plane's policy for every port; with None the environment's default stays."""

    def __init__(
        self, ticking: Ticking, policy: ServerPolicy | None = None, onward: FindOnward | None = None, **env: str | None
    ) -> None:
        self.ticking = ticking
        self.config = parse(environment(INBOUND_LISTEN_ADDR="127.0.0.1:0", **env))
        self.registry = Registry(ticking.reactor.clock)
        self.drain = Drain()
        self.credentials: Credentials = credentials(NAME)
        self.policy = policy
        self.watches: dict[int, Watch[ServerPolicy]] = {}
        self.original: Addr | OSError | None = None
        """The original destination of the next clients; None stands for the app's address."""
        self.app = App()
        self.find_profile: FindProfile = lambda name: Watch(Absent("there is none"))
        lookups = Lookups(self._watch, self._destination, onward, lambda name: self.find_profile(name))
        self.inbound = Inbound(ticking.reactor, self.config, self.credentials, lookups, self.registry, self.drain)
        self.listener = Listener(ticking.reactor, Addr("127.0.0.1", 0), self.inbound.accept)
        self.inbound.listens_at(self.listener.addr)

    async def __aenter__(self) -> Workload:
        await self.app.start()
        return self

    async def __aexit__(self, fault: object, *_: object) -> None:
        self.listener.close()
        self.inbound.close()
        self.app.stop()
        if fault is None:
            await until(lambda: not len(self.drain), "every connection has ended")

    def _watch(self, port: int, initial: ServerPolicy) -> Watch[ServerPolicy]:
        made = self.watches[port] = Watch(self.policy or initial)
        return made

    def _destination(self, sock: Any, peer: Addr) -> Addr:
        if isinstance(self.original, OSError):
            raise self.original
        return self.original or Addr("127.0.0.1", self.app.port)

    # ---- clients

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection(*self.listener.addr))

    async def connect_tls(self, peer: str | None = PEER, name: str = NAME, offers_header: bool = False) -> Client:
        """Connect by mesh TLS as this peer; None stands for a client without a certificate."""
        own = credentials(peer or "nobody", is_certified=peer is not None)
        return await self.connect_as(own, name, offers_header)

    async def connect_as(self, own: Credentials, name: str = NAME, offers_header: bool = False) -> Client:
        context = own.client_context(offers_header)
        return Client(*await asyncio.open_connection(*self.listener.addr, ssl=context, server_hostname=name))

    async def connect_direct(self, header: TransportHeader, peer: str | None = PEER) -> Client:
        self.original = self.listener.addr
        client = await self.connect_tls(peer, offers_header=True)
        client.write(encode(header))
        return client

    # ---- numbers

    def metric(self, name: str, *needles: str) -> float:
        """The sum of a family's samples that have all of these labels."""
        found = 0.0
        for line in self.registry.render().decode().splitlines():
            if line.startswith((f"{name} ", f"{name}{{")) and all(one in line for one in needles):
                found += float(line.rpartition(" ")[2])
        return found

    def lines(self, name: str) -> list[str]:
        return [line for line in self.registry.render().decode().splitlines() if line.startswith(f"{name}{{")]


class Http2Client:
    """An independent HTTP/2 client, over any Client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.http2 = http2.Http2Client()
        client.write(self.http2.take())

    @property
    def goaways(self) -> list[int]:
        return self.http2.goaways

    def send(self) -> None:
        self.client.write(self.http2.take())

    async def ask(self, headers: list[tuple[str, str]], body: bytes = b"") -> Answered:
        return await self._answer(self.http2.ask(headers, body))

    async def get(self, path: str = "/", *more: tuple[str, str], method: str = "GET", authority: str = "x") -> Answered:
        return await self._answer(self.http2.get(path, *more, method=method, authority=authority))

    async def _answer(self, stream_id: int) -> Answered:
        answered = self.http2.answers[stream_id]
        self.send()
        while not answered.is_over:
            self.http2.feed(await asyncio.wait_for(self.client.reader.read(65536), 10))
            self.send()
        answered.headers = [(name, value) for name, value in answered.headers if name != "date"]
        return answered

    def close(self) -> None:
        self.client.close()
