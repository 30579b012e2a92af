"""A peer that writes HTTP/2 frames by hand, for what no library would send."""

from __future__ import annotations

from typing import Any, NamedTuple

import hpack

from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http.exchange import Exchange
from proxy.http.h2.client import H2Client
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.settings import DEFAULT, H2Settings
from proxy.http.h2.server import H2Server
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import Field, field
from proxy.http.pool import Pool
from proxy.http.stream import ClientEnd, ServerEnd
from tests.kit import Clock, ListWire
from tests.kit.attempts import ToPoolAgain

GET = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"svc"), (b":path", b"/x")]
POST = [(b":method", b"POST"), *GET[1:]]
OK = [(b":status", b"200"), (b"date", b"today")]


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def number(self) -> int:
        """The last 32 bits: an error code or an increment."""
        return int.from_bytes(self.payload[-4:], "big")


def frames(data: bytes) -> list[Frame]:
    found = []
    while data:
        size = int.from_bytes(data[:3], "big")
        found.append(Frame(data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return found


def raw(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return frame.header(len(payload), kind, flags, stream) + payload


class Sink(ClientEnd):
    """The client stream of an endpoint that keeps what it was sent."""

    def __init__(self) -> None:
        self.head: RequestHead | None = None
        self.body = b""
        self.has_ended = False
        self.trailers: list[Field] | None = None
        self.reset_for: Reason | None = None
        self.pauses = 0

    def end_sending(self) -> bool:
        return True

    def send_head(self, head: RequestHead, end: bool) -> None:
        self.head = head
        self.has_ended = end

    def send_data(self, data: bytes, end: bool) -> None:
        self.body += data
        self.has_ended = end

    def send_trailers(self, fields: list[Field]) -> None:
        self.trailers = fields
        self.has_ended = True

    def reset(self, reason: Reason) -> None:
        self.reset_for = reason

    def pause_reading(self, cause: int) -> None:
        self.pauses |= cause

    def resume_reading(self, cause: int) -> None:
        self.pauses &= ~cause


class Sinks:
    """A stage whose endpoint is a Sink per request; `answers` replies to each request that ends with its head."""

    def __init__(self, answers: bool) -> None:
        self.exchanges: list[Exchange] = []
        self.sinks: list[Sink] = []
        self._answers = answers

    def dispatch(self, exchange: Exchange) -> None:
        sink = Sink()
        self.exchanges.append(exchange)
        self.sinks.append(sink)
        exchange.attach(sink)
        if self._answers and exchange.request_ended:
            exchange.response_head(ok(0), True)


def ok(size: int) -> ResponseHead:
    return ResponseHead(200, [field(b"content-length", b"%d" % size), field(b"date", b"today")], size)


def bare() -> ResponseHead:
    """A response head without a length, so that only the end of the response shows where its body ends."""
    return ResponseHead(200, [field(b"date", b"today")], -1)


class Client:
    """A frame-level client of our server."""

    def __init__(
        self, settings: H2Settings = DEFAULT, answers: bool = False, opens: bool = True, stage: Any = None
    ) -> None:
        self.clock = Clock()
        self.wheel = Wheel(0.1, self.clock.now)
        self.wire = ListWire()
        self.stage: Any = stage or Sinks(answers)
        self.server = H2Server(self.wire, self.stage, self.clock, settings, self.wheel)
        self.encoder = hpack.Encoder()
        self.decoder: Any = hpack.Decoder()
        if opens:
            self.send(frame.PREFACE + frame.settings([]) + frame.SETTINGS_ACK)

    def send(self, data: bytes) -> list[Frame]:
        """Send bytes to the server; returns the frames that it answers with."""
        self.server.feed(data)
        return self.take()

    def take(self) -> list[Frame]:
        return frames(self.wire.take())

    def head(self, stream: int, fields: list[tuple[bytes, bytes]] = GET, end: bool = True) -> list[Frame]:
        return self.send(frame.header_frames(stream, self.encoder.encode(fields), end))

    def pass_time(self, seconds: float) -> list[Frame]:
        for _ in range(int(seconds / 0.1) + 1):
            self.clock.now += 0.1
            self.wheel.advance(self.clock.now)
        return self.take()


def goaway_code(got: list[Frame]) -> int | None:
    codes = [one.number for one in got if one.kind == frame.GOAWAY]
    return codes[-1] if codes else None


def reset_codes(got: list[Frame]) -> dict[int, int]:
    return {one.stream: one.number for one in got if one.kind == frame.RST_STREAM}


class Server:
    """A frame-level server of our client. Its exchanges have a Front as their server stream."""

    def __init__(self, settings: H2Settings = DEFAULT, opens: bool = True) -> None:
        self.clock = Clock()
        self.wheel = Wheel(0.1, self.clock.now)
        self.wire = ListWire()
        self.dialled = 0
        self.pool = Pool(self._dial)
        self._settings = settings
        self.client: H2Client = None  # type: ignore[assignment]
        self.encoder = hpack.Encoder()
        self.decoder: Any = hpack.Decoder()
        self.pool.connect()
        assert self.wire.take().startswith(frame.PREFACE)
        if opens:
            self.send(frame.settings([]) + frame.SETTINGS_ACK)

    def _dial(self, pool: Pool) -> H2Client:
        self.dialled += 1
        self.wire = ListWire()
        self.client = H2Client(self.wire, pool, self._settings, self.wheel)
        return self.client

    def request(self, method: bytes = b"GET", end: bool = True, fields: list[Field] | None = None) -> Front:
        head = RequestHead(method, b"http", b"svc", b"/x", fields or [], 0 if end else -1)
        return self.open(head, end)

    def open(self, head: RequestHead, end: bool = True) -> Front:
        front = Front(head)
        front.exchange.request_ended = end
        ToPoolAgain(self.pool).send(front.exchange)
        return front

    def send(self, data: bytes) -> list[Frame]:
        self.client.feed(data)
        return self.take()

    def take(self) -> list[Frame]:
        data = self.wire.take()
        return frames(data.removeprefix(frame.PREFACE))

    def head(self, stream: int, fields: list[tuple[bytes, bytes]] = OK, end: bool = True) -> list[Frame]:
        return self.send(frame.header_frames(stream, self.encoder.encode(fields), end))

    def pass_time(self, seconds: float) -> list[Frame]:
        for _ in range(int(seconds / 0.1) + 1):
            self.clock.now += 0.1
            self.wheel.advance(self.clock.now)
        return self.take()


class Front(ServerEnd):
    """A server stream that keeps what its client gets."""

    def __init__(self, head: RequestHead) -> None:
        self.informational: list[int] = []
        self.head: Any = None
        """A ResponseHead, once one has come."""
        self.body = b""
        self.has_ended = False
        self.trailers: list[Field] | None = None
        self.reset_for: Reason | None = None
        self.pauses = 0
        self.exchange = Exchange(self, head, 100.0)

    def send_informational(self, head: ResponseHead) -> None:
        self.informational.append(head.status)

    def send_head(self, head: ResponseHead, end: bool) -> None:
        self.head = head
        self.has_ended = end

    def send_data(self, data: bytes, end: bool) -> None:
        self.body += data
        self.has_ended = end

    def send_trailers(self, fields: list[Field]) -> None:
        self.trailers = fields
        self.has_ended = True

    def reset(self, reason: Reason) -> None:
        self.reset_for = reason

    def close_connection(self) -> None:
        pass

    def pause_reading(self, cause: int) -> None:
        self.pauses |= cause

    def resume_reading(self, cause: int) -> None:
        self.pauses &= ~cause

    @property
    def upstream(self) -> Any:
        """The client stream that the exchange was given."""
        return self.exchange.client

    @property
    def status(self) -> int:
        return self.head.status if self.head is not None else 0
