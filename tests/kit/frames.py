"""HTTP/2 written and read frame by frame over a Peer, in either role, with `hpack` for the header blocks.

It acknowledges SETTINGS and PING and gives credit for DATA, unless switched off; the script does everything else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hpack

from tests.kit.wire import Ended, Peer

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS = 4
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 5, 6, 7, 8, 9
CONNECT_ERROR, ENHANCE_YOUR_CALM = 10, 11
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)
ENABLE_CONNECT_PROTOCOL = 8

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
Fields = list[tuple[bytes, bytes]]


def request(
    path: bytes = b"/", *more: tuple[bytes, bytes], method: bytes = b"GET", authority: bytes = b"app.ns"
) -> Fields:
    return [(b":method", method), (b":scheme", b"http"), (b":authority", authority), (b":path", path), *more]


OK: Fields = [(b":status", b"200")]
GRPC: Fields = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


@dataclass
class Stream:
    """What has come on one stream."""

    id: int
    heads: list[Fields] = field(default_factory=list)
    """The heads of a response: informational ones come first."""
    body: bytearray = field(default_factory=bytearray)
    trailers: Fields = field(default_factory=list)
    has_ended: bool = False
    reset: int | None = None

    @property
    def is_over(self) -> bool:
        return self.has_ended or self.reset is not None

    @property
    def head(self) -> Fields:
        return self.heads[-1] if self.heads else []

    @property
    def status(self) -> int:
        return int(self.get(b":status") or 0)

    def get(self, name: bytes) -> bytes | None:
        return dict(self.head).get(name)

    def all(self, name: bytes) -> list[bytes]:
        return [value for one, value in self.head if one == name]


class Http2:
    def __init__(
        self, peer: Peer, is_client: bool = True, *, gives_credit: bool = True, settings: dict[int, int] | None = None
    ) -> None:
        """Opens the connection: the preface, and SETTINGS."""
        self.peer = peer
        self.gives_credit = gives_credit
        self.encoder: Any = hpack.Encoder()
        self.decoder: Any = hpack.Decoder(1 << 22)
        self.streams: dict[int, Stream] = {}
        self.goaways: list[tuple[int, int]] = []
        """Last stream and error code of each GOAWAY."""
        self.frames: list[Frame] = []
        self.settings: dict[int, int] = {}
        self.pongs: list[bytes] = []
        self.window = 65535
        self.windows: dict[int, int] = {}
        """For each stream that was sent on: the credit given beyond the initial window, less what was sent."""
        self.is_client = is_client
        self._next = 1
        self._block = b""
        self._block_flags = 0
        if is_client:
            self.peer.send(PREFACE)
        else:
            assert self.peer.exactly(len(PREFACE)) == PREFACE
        self.send(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *one) for one in (settings or {}).items()))

    # ---- writing

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.peer.send(frame(kind, flags, stream, payload))

    def headers(self, stream: int, fields: Fields, end: bool = False) -> None:
        """Send a head, in as many frames as it takes."""
        block = self.encoder.encode(fields, huffman=False)
        pieces = [block[i : i + 16384] for i in range(0, len(block), 16384)] or [b""]
        out = [
            frame(
                CONTINUATION if index else HEADERS,
                (END_STREAM if end and not index else 0) | (END_HEADERS if index == len(pieces) - 1 else 0),
                stream,
                piece,
            )
            for index, piece in enumerate(pieces)
        ]
        self.peer.send(*out)

    def data(self, stream: int, data: bytes, end: bool = False, step: int = 16384) -> None:
        """Send data as the windows allow, and read frames while they do not."""
        position = 0
        while True:
            size = min(step, len(data) - position)
            if size:
                self.wait(lambda: min(self.window, self.room(stream)) > 0 or self.stream(stream).reset is not None)
                if self.stream(stream).reset is not None:
                    return
                size = min(size, self.window, self.room(stream))
            self.window -= size
            self.windows[stream] = self.windows.get(stream, 0) - size
            is_last = position + size == len(data)
            self.send(DATA, END_STREAM if end and is_last else 0, stream, data[position : position + size])
            position += size
            if is_last:
                return

    def room(self, stream: int) -> int:
        return self.settings.get(INITIAL_WINDOW_SIZE, 65535) + self.windows.get(stream, 0)

    def rst(self, stream: int, code: int = CANCEL) -> None:
        self.send(RST_STREAM, 0, stream, struct.pack(">I", code))

    def goaway(self, last: int, code: int = NO_ERROR) -> None:
        self.send(GOAWAY, 0, 0, struct.pack(">II", last, code))

    def credit(self, stream: int, size: int) -> None:
        self.send(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))

    def set(self, **pairs: int) -> None:
        """Send settings, given as `HEADER_TABLE_SIZE=0` and the like."""
        self.send(SETTINGS, 0, 0, b"".join(struct.pack(">HI", globals()[name], one) for name, one in pairs.items()))

    # ---- reading

    def wait(self, condition: Callable[[], Any]) -> None:
        """Read frames until the condition holds. Ended if the connection ends before."""
        while not condition():
            self.read()

    def read(self) -> Frame:
        """Read one frame, and take note of it."""
        head = self.peer.exactly(9)
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        one = Frame(kind, flags, stream & 0x7FFFFFFF, self.peer.exactly(int.from_bytes(head[:3], "big")))
        if kind != DATA:
            self.frames.append(one)
        self._take(one)
        return one

    def stream(self, number: int) -> Stream:
        return self.streams.setdefault(number, Stream(number))

    def _take(self, one: Frame) -> None:
        kind, flags, number, payload = one
        if kind in (HEADERS, CONTINUATION):
            if flags & 8 or flags & 32:
                raise AssertionError("padding or priority, which nobody sends here")
            if kind == HEADERS:
                self._block_flags = flags
            self._block += payload
            if flags & END_HEADERS:
                fields = [(bytes(name), bytes(value)) for name, value in self.decoder.decode(self._block, raw=True)]
                self._block = b""
                self._head(self.stream(number), fields, self._block_flags & END_STREAM != 0)
        elif kind == DATA:
            stream = self.stream(number)
            stream.body += payload
            stream.has_ended = flags & END_STREAM != 0
            if self.gives_credit and payload:
                self._reply(
                    *[
                        frame(WINDOW_UPDATE, 0, to, struct.pack(">I", len(payload)))
                        for to in ((0,) if stream.has_ended else (0, number))
                    ]
                )
        elif kind == RST_STREAM:
            self.stream(number).reset = int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            self.settings |= dict(struct.iter_unpack(">HI", payload))
            self._reply(frame(SETTINGS, ACK, 0))
        elif kind == PING and flags & ACK:
            self.pongs.append(payload)
        elif kind == PING:
            self._reply(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            last, code = struct.unpack(">II", payload[:8])
            self.goaways.append((last & 0x7FFFFFFF, code))
        elif kind == WINDOW_UPDATE:
            increment = int.from_bytes(payload, "big")
            if number:
                self.windows[number] = self.windows.get(number, 0) + increment
            else:
                self.window += increment

    def _head(self, stream: Stream, fields: Fields, end: bool) -> None:
        is_head = any(name.startswith(b":") for name, _ in fields)
        if is_head:
            stream.heads.append(fields)
        else:
            stream.trailers = fields
        stream.has_ended = end

    def _reply(self, *frames: bytes) -> None:
        """Send what must be answered. An other side that has ended needs no answers, but what it sent before must
        still be read.
        """
        try:
            self.peer.send(*frames)
        except OSError:
            pass

    # ---- clients

    def begin(self, fields: Fields, end: bool = True) -> Stream:
        number = self.next_id()
        self.headers(number, fields, end)
        return self.stream(number)

    def next_id(self) -> int:
        self._next += 2
        return self._next - 2

    def ask(self, fields: Fields, body: bytes = b"", trailers: Fields | None = None) -> Stream:
        """Send a whole request and return its whole answer."""
        stream = self.begin(fields, end=not body and trailers is None)
        if body:
            self.data(stream.id, body, end=trailers is None)
        if trailers is not None:
            self.headers(stream.id, trailers, end=True)
        return self.finish(stream)

    def finish(self, stream: Stream) -> Stream:
        self.wait(lambda: stream.is_over)
        return stream

    def is_alive(self) -> bool:
        """Whether the other side answers a PING."""
        before = len(self.pongs)
        self.send(PING, 0, 0, b"alive? 1")
        try:
            self.wait(lambda: len(self.pongs) > before)
        except (Ended, OSError):
            return False
        return True

    def end(self) -> tuple[int, int] | None:
        """The last GOAWAY, once the other side has ended the connection; None if there was none."""
        try:
            while True:
                self.read()
        except (Ended, ConnectionError):
            return self.goaways[-1] if self.goaways else None

    # ---- servers

    def next_request(self, *, whole: bool = True) -> Stream:
        """The next stream that was opened: with its body if `whole`, else as soon as its head has come."""
        stream = self.stream(self.next_id())
        self.wait(lambda: stream.is_over if whole else stream.heads)
        return stream

    def answer(
        self, stream: Stream, body: bytes = b"ok", *more: tuple[bytes, bytes], trailers: Fields | None = None
    ) -> None:
        self.headers(stream.id, [*OK, *more], end=not body and trailers is None)
        if body:
            self.data(stream.id, body, end=trailers is None)
        if trailers is not None:
            self.headers(stream.id, trailers, end=True)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


class Serving:
    """A script: an HTTP/2 app that answers every whole request with `answer(connection, stream)`."""

    def __init__(self, answer: Callable[[Http2, Stream], None] | None = None, **options: Any) -> None:
        self.requests: list[Stream] = []
        self.connections: list[Http2] = []
        self._answer = answer or (lambda connection, stream: connection.answer(stream))
        self._options = options

    def __call__(self, peer: Peer) -> None:
        connection = Http2(peer, False, **self._options)
        self.connections.append(connection)
        answered: set[int] = set()
        while True:
            connection.read()
            for number, stream in list(connection.streams.items()):
                if stream.has_ended and stream.heads and number not in answered:
                    answered.add(number)
                    self.requests.append(stream)
                    self._answer(connection, stream)
