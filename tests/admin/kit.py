"""The admin stage on list wires, asked in HTTP/1 and in HTTP/2."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proxy.admin import Admin, AdminStage, Readiness, Scrapes
from proxy.core.address.addr import Addr, addr
from proxy.core.log.filter import parse
from proxy.core.loop.step_queue import Steps
from proxy.http.h1.server import H1Server
from proxy.http.h2.server import H2Server
from tests.kit import Clock, ListWire
from tests.kit.http2 import Http2Client

LOCAL = addr("127.0.0.1", 50000)
REMOTE = addr("10.42.0.1", 50000)


class Log:
    """A log level that is a text."""

    def __init__(self, is_off: bool = False) -> None:
        self.is_off = is_off
        self.filter: object = parse("warn,linkerd=info")

    def set(self, text: str) -> None:
        self.filter = parse(text)


class StepQueue:
    """A step queue whose steps are taken by the test, or as soon as a request has been read."""

    def __init__(self) -> None:
        self.asked: list[Steps] = []

    def add(self, target: Steps) -> None:
        self.asked.append(target)

    def take_all(self) -> None:
        while self.asked:
            self.asked.pop(0).step()


class AdminServer:
    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        shut_down: Callable[[], bool] | None = None,
        is_off: bool = False,
    ) -> None:
        self.readiness = Readiness()
        self.log = Log(is_off)
        self.page: Callable[[], bytes] = lambda: b"# EOF\n"
        self.clock = Clock()
        self.steps = StepQueue()
        self.scrapes = Scrapes(lambda: iter((self.page(),)), self.steps, self.clock)
        self.admin = Admin(self.readiness, self.scrapes, self.log, env or {}, shut_down)

    def http1(self, request: bytes, peer: Addr = LOCAL) -> bytes:
        """All that the server wrote to a connection on which it received only this."""
        wire = ListWire()
        H1Server(wire, AdminStage(self.admin, peer.is_loopback), Clock()).feed(request)
        self.steps.take_all()
        return wire.take()

    def ask(self, line: str, *fields: str, body: bytes = b"", peer: Addr = LOCAL) -> tuple[int, dict[str, str], bytes]:
        """`GET /path` over HTTP/1: status, fields without the date, body."""
        head = "\r\n".join((f"{line} HTTP/1.1", "host: localhost:4191", *fields))
        length = f"content-length: {len(body)}\r\n" if body else ""
        answer = self.http1(f"{head}\r\n{length}\r\n".encode("latin-1") + body, peer)
        top, _, rest = answer.partition(b"\r\n\r\n")
        status, *lines = top.decode().split("\r\n")
        found = dict(line.split(": ", 1) for line in lines)
        found.pop("date")
        return int(status.split()[1]), found, rest

    def http2(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body over an independent HTTP/2 client."""
        wire = ListWire()
        server = H2Server(wire, AdminStage(self.admin, True), Clock())
        client = Http2Client()
        pseudo = [(":method", method), (":scheme", "http"), (":authority", "localhost:4191"), (":path", path)]
        answered = client.answers[client.ask(pseudo, body)]
        server.feed(client.take())
        self.steps.take_all()
        client.feed(wire.take())
        assert answered.is_over and answered.reset is None
        return int(answered.status), answered.body
