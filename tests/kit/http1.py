"""HTTP/1 as the tests speak it, independent of the product: messages read as they were on the wire, and written by hand.

How a message is read is written once, as readings. They are driven by whatever has the bytes: streams of asyncio
here, blocking sockets (`wire.py`), list wires (`pair.py`). The reader is lenient about everything that tests check
themselves: it keeps names, values and order as they came.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, NamedTuple

Lines = list[tuple[bytes, bytes]]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]

DEADLINE_S = 20.0


class Message(NamedTuple):
    """A request or a response as it was on the wire."""

    start: bytes
    fields: Lines
    framing: str
    """`none`, `length`, `chunked` or `close`."""
    body: bytes
    trailers: Lines
    raw: bytes
    """All of its bytes, framing included."""

    @property
    def status(self) -> int:
        return int(self.start.split(b" ")[1])

    @property
    def method(self) -> bytes:
        return self.start.split(b" ")[0]

    @property
    def target(self) -> bytes:
        return self.start.split(b" ")[1]

    @property
    def is_last(self) -> bool:
        """Whether its sender wants no further message on the connection."""
        return b"HTTP/1.0" in self.start or b"close" in [one.lower() for one in self.all(b"connection")]

    def all(self, name: bytes) -> list[bytes]:
        return [value for one, value in self.fields if one.lower() == name]

    def one(self, name: bytes) -> bytes | None:
        found = self.all(name)
        assert len(found) <= 1, f"{name!r} more than once: {found}"
        return found[0] if found else None


# ---- reading

Wanted = bytes | int | None
"""What a reading needs next: bytes up to and including a marker, a number of bytes, or all until the other side ends."""
Reading = Generator[Wanted, bytes, Message]
"""Yields what it needs, is sent that, and returns the message."""


def reading_request() -> Reading:
    """The next request, by the framing in its head."""
    return _reading(is_response=False, method=b"")


def reading_response(method: bytes = b"GET", informational: bool = False) -> Reading:
    """The next final response; with `informational` also a 1xx."""
    while True:
        message = yield from _reading(is_response=True, method=method)
        if informational or message.status >= 200 or message.status == 101:
            return message


def _reading(is_response: bool, method: bytes) -> Reading:
    head = yield b"\r\n\r\n"
    lines = head[:-4].split(b"\r\n")
    message = Message(lines[0], fields_of(lines[1:]), "none", b"", [], head)
    if is_response and (message.status < 200 or message.status in (204, 304) or method == b"HEAD"):
        return message
    if is_response and method == b"CONNECT" and message.status < 300:
        return message
    if [value.lower() for value in message.all(b"transfer-encoding")] == [b"chunked"]:
        return (yield from _reading_chunks(message))
    lengths = set(message.all(b"content-length"))
    if lengths:
        (length,) = lengths
        body = (yield int(length)) if int(length) else b""
        return message._replace(framing="length", body=body, raw=head + body)
    if is_response:
        body = yield None
        return message._replace(framing="close", body=body, raw=head + body)
    return message


def _reading_chunks(message: Message) -> Reading:
    raw = [message.raw]
    parts: list[bytes] = []
    while True:
        line = yield b"\r\n"
        raw.append(line)
        size = int(line[:-2].partition(b";")[0], 16)
        if not size:
            break
        part = yield size
        end = yield 2
        assert end == b"\r\n"
        parts.append(part)
        raw += part, end
    trailers: list[bytes] = []
    while True:
        line = yield b"\r\n"
        raw.append(line)
        if line == b"\r\n":
            break
        trailers.append(line[:-2])
    body = b"".join(parts)
    return message._replace(framing="chunked", body=body, trailers=fields_of(trailers), raw=b"".join(raw))


def fields_of(lines: list[bytes]) -> Lines:
    pairs = [line.partition(b":") for line in lines]
    return [(name, value.strip(b" \t")) for name, _, value in pairs]


class Inbox:
    """Cuts whole requests out of the bytes that are fed, however they are cut."""

    def __init__(self) -> None:
        self._unread = b""
        self._reading = reading_request()
        self._wanted = next(self._reading)

    def feed(self, data: bytes) -> Iterator[Message]:
        """The requests that these bytes complete."""
        self._unread += data
        while (piece := self._piece()) is not None:
            try:
                self._wanted = self._reading.send(piece)
            except StopIteration as done:
                self._reading = reading_request()
                self._wanted = next(self._reading)
                yield done.value

    def _piece(self) -> bytes | None:
        """What the reading needs, once it is there."""
        assert self._wanted is not None
        if isinstance(self._wanted, int):
            size = self._wanted if len(self._unread) >= self._wanted else 0
        else:
            found = self._unread.find(self._wanted)
            size = found + len(self._wanted) if found >= 0 else 0
        if not size:
            return None
        piece, self._unread = self._unread[:size], self._unread[size:]
        return piece


async def read(reader: asyncio.StreamReader, reading: Reading, timeout_s: float | None = DEADLINE_S) -> Message:
    """One message from a stream; IncompleteReadError if the other side ends before."""
    async with asyncio.timeout(timeout_s):
        try:
            wanted = next(reading)
            while True:
                wanted = reading.send(await _piece_of(reader, wanted))
        except StopIteration as done:
            message: Message = done.value
            return message


async def _piece_of(reader: asyncio.StreamReader, wanted: Wanted) -> bytes:
    if wanted is None:
        return await reader.read()
    return await (reader.readexactly(wanted) if isinstance(wanted, int) else reader.readuntil(wanted))


# ---- writing


def get(target: bytes = b"/", *lines: bytes, method: bytes = b"GET", host: bytes = b"app.ns") -> bytes:
    """A request without a body."""
    return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (method, target, host, b"".join(one + b"\r\n" for one in lines))


def post(body: bytes, *lines: bytes, method: bytes = b"POST", target: bytes = b"/") -> bytes:
    return get(target, *lines, b"Content-Length: %d" % len(body), method=method) + body


def ok(body: bytes = b"ok", *lines: bytes, status: bytes = b"200 OK") -> bytes:
    more = b"".join(one + b"\r\n" for one in lines)
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


OK = ok()


def chunks(*data: bytes, trailers: bytes = b"") -> bytes:
    return b"".join([b"%x\r\n%b\r\n" % (len(one), one) for one in data]) + b"0\r\n" + trailers + b"\r\n"


def without_body(answer: bytes) -> bytes:
    """An answer as it is sent for HEAD."""
    return answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


# ---- the two ends, on streams of asyncio


class Client:
    """A client's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self, count: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(count), DEADLINE_S)

    async def rest(self) -> bytes:
        """All bytes until the other side ends; a reset is shown as `<RST>`."""
        try:
            return await asyncio.wait_for(self.reader.read(), DEADLINE_S)
        except (ConnectionResetError, ssl.SSLError):
            return b"<RST>"

    async def response(self, method: bytes = b"GET") -> Message:
        """The next final response."""
        return await read(self.reader, reading_response(method))

    async def answer(self, method: bytes = b"GET") -> bytes:
        """The next response as it was on the wire, without its date."""
        head, mark, body = (await read(self.reader, reading_response(method, True))).raw.partition(b"\r\n\r\n")
        lines = [one for one in head.split(b"\r\n") if not one.lower().startswith(b"date:")]
        return b"\r\n".join(lines) + mark + body

    async def ask(self, request: bytes) -> bytes:
        self.write(request)
        return await self.answer(request.partition(b" ")[0])

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()


def http1_app(
    answer: Callable[[Message], bytes | Awaitable[bytes | None] | None], seen: list[Message] | None = None
) -> Serve:
    """An HTTP/1 server for `asyncio.start_server`. It sends the bytes that `answer` returns for each whole request, at
    once or later. Empty bytes end the connection, and so does `close` in an answer or a request. `seen` gets the
    requests.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await read(reader, reading_request(), None)
                if seen is not None:
                    seen.append(request)
                said = answer(request)
                if inspect.isawaitable(said):
                    said = await said
                if said is None:
                    break
                writer.write(without_body(said) if request.method == b"HEAD" else said)
                await writer.drain()
                if request.is_last or b"connection: close" in said.partition(b"\r\n\r\n")[0].lower():
                    break
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, ConnectionError):
            pass  # it left, or what it says is not HTTP
        finally:
            writer.close()

    return serve
