"""The proxy's HTTP/1 codecs on list wires, and an app behind them that keeps each request's bytes and answers by path."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proxy.core.codec import Codec
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http.exchange import Exchange, Stage
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.h1.server import H1Server
from proxy.http.pool import Pool
from tests.kit import Clock, ListWire
from tests.kit.attempts import ToPoolAgain
from tests.kit.http1 import Inbox, Message, without_body

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nX-App: 1\r\n\r\nok"
CLOSE = b"CLOSE"
RESET = b"RST"


class ToPool:
    """The stage of these tests: it edits the head if the test asks for that, and sends it on."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.origin = ToPoolAgain(pool)
        self.exchanges: list[Exchange] = []
        self.edit: Callable[[Exchange], None] | None = None
        self.answer_within_s = 0.0
        """How long each attempt waits for a response head; 0 means for ever."""

    def dispatch(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        if self.edit is not None:
            self.edit(exchange)
        self.origin.send(exchange, self.answer_within_s)


class Pair:
    """An H1Server and the H1Clients that its exchanges open. Their ends are called `client`, `app`, `app2`, …"""

    def __init__(self, stage: Stage | None = None) -> None:
        self.clock = Clock()
        self.wheel = Wheel(0.1, self.clock.now)
        self.wires: list[ListWire] = []
        self.clients: list[H1Client] = []
        self.pool = H1Pool(self.dial, self.wheel)
        self.stage = ToPool(self.pool)
        self.wire = ListWire()
        self.server = H1Server(self.wire, stage or self.stage, self.clock, self.wheel)
        self.wire.codec = self.server

    def dial(self, pool: Pool) -> H1Client:
        wire = ListWire()
        client = H1Client(wire, pool)
        wire.codec = client
        self.wires.append(wire)
        self.clients.append(client)
        return client

    def ends(self) -> Iterator[tuple[str, ListWire]]:
        yield "client", self.wire
        for index, wire in enumerate(self.wires):
            yield "app" if not index else f"app{index + 1}", wire

    def advance(self, seconds: float) -> None:
        self.clock.now += seconds
        self.wheel.advance(self.clock.now)


class App:
    """Reads requests from one dialled wire and writes the answers that `replies` has for their paths."""

    def __init__(self, wire: ListWire, replies: dict[bytes, bytes], seen: list[bytes]) -> None:
        self._wire = wire
        self._replies = replies
        self._seen = seen
        self._inbox = Inbox()
        self._is_tunnel = False
        self.is_closed = False

    def _codec(self) -> Codec:
        codec = self._wire.codec
        assert codec is not None
        return codec

    def run(self) -> bool:
        """Read what the proxy wrote. Returns whether anything moved."""
        data = self._wire.take()
        if self._wire.is_over:
            self.is_closed = True
        if self.is_closed or not data:
            return False
        if self._is_tunnel:
            self._codec().feed(data)
            return True
        for request in self._inbox.feed(data):
            self._seen.append(request.raw)
            self._answer(request)
            if self.is_closed:
                break
        return True

    def _answer(self, request: Message) -> None:
        reply = self._replies.get(request.target.split(b"?")[0], ANSWER)
        codec = self._codec()
        if reply in (CLOSE, RESET):
            self.is_closed = True
            codec.lost(Reason.PEER_CLOSED if reply == CLOSE else Reason.CONNECTION_RESET)
            return
        if request.method == b"HEAD":
            reply = without_body(reply)
        if reply.startswith(b"HTTP/1.1 101") or request.method == b"CONNECT":
            self._is_tunnel = True
        codec.feed(reply)
        if b"connection: close" in reply.lower() or reply.startswith(b"HTTP/1.0"):
            self.is_closed = True
            codec.eof()


def serve(pair: Pair, replies: dict[bytes, bytes] | None = None) -> list[bytes]:
    """Let apps answer on every wire that is dialled, until nothing moves. Returns what they saw, in order."""
    seen: list[bytes] = []
    apps: list[App] = []
    moved = True
    while moved:
        for wire in pair.wires[len(apps) :]:
            apps.append(App(wire, replies or {}, seen))
        moved = any(app.run() for app in apps)
    return seen
