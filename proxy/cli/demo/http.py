"""The demo's own small HTTP/1.1, independent of the proxy's codecs, which thereby work with another implementation.

For loopback and for well-behaved peers; a surprise is a ConnectionError, never a guess.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from proxy.core.address.addr import Addr

HEAD_BYTES = 65536
_PIECE_BYTES = 65536


class Head(NamedTuple):
    start: str
    fields: dict[str, str]
    """Names in lower case; of repeated fields the last counts."""

    @property
    def keeps_alive(self) -> bool:
        return self.fields.get("connection", "").lower() != "close"


class Request(NamedTuple):
    """A request of either version, as an app sees it."""

    version: str
    """`HTTP/1.1` or `HTTP/2`."""
    method: str
    fields: dict[str, str]
    body_bytes: int = 0


class Response(NamedTuple):
    """A response of either version."""

    status: int
    fields: dict[str, str]
    body: bytes


Answer = Callable[[Request], Awaitable[Response]]
"""An app."""


async def read_head(reader: StreamReader) -> Head | None:
    """The next head; None if the peer closed instead. ConnectionError if it is not a head."""
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise ConnectionError("closed in the middle of a head") from None
        return None
    except asyncio.LimitOverrunError:
        raise ConnectionError("the head is too long") from None
    start, *lines = text.split("\r\n")
    fields = (line.partition(":") for line in lines if line)
    return Head(start, {name.lower(): value.strip() for name, _, value in fields})


async def read_body(reader: StreamReader, head: Head, ends_with_connection: bool = False) -> bytes:
    """The whole body that follows a head."""
    if head.fields.get("transfer-encoding", "").lower() == "chunked":
        return b"".join([piece async for piece in _chunks(reader)])
    if "content-length" in head.fields:
        return await _exactly(reader, int(head.fields["content-length"]))
    return await reader.read() if ends_with_connection else b""


async def skip_body(reader: StreamReader, head: Head) -> int:
    """Read a request's body and count its bytes, without holding them."""
    if head.fields.get("transfer-encoding", "").lower() == "chunked":
        return sum([len(piece) async for piece in _chunks(reader)])
    length = left = int(head.fields.get("content-length", "0"))
    while left:
        left -= len(await _exactly(reader, min(left, _PIECE_BYTES)))
    return length


class Client:
    """One keep-alive connection."""

    __slots__ = ("_reader", "_writer", "is_open")

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_open = True

    async def get(self, target: str, host: str) -> Response:
        """ConnectionError if no whole response comes."""
        try:
            self._writer.write(f"GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            head = await read_head(self._reader)
            if head is None:
                raise ConnectionError("closed without a response")
            body = await read_body(self._reader, head, ends_with_connection=True)
            response = Response(int(head.start.split(" ", 2)[1]), head.fields, body)
        except BaseException:
            self.close()
            raise
        if not head.keeps_alive:
            self.close()
        return response

    def close(self) -> None:
        self.is_open = False
        self._writer.close()


async def connect(addr: Addr) -> Client:
    return Client(*await asyncio.open_connection(addr.ip, addr.port, limit=HEAD_BYTES))


class Http1Requests:
    """GET requests on as many keep-alive connections as there are requests at once, through an explicit proxy or to a server."""

    __slots__ = ("_through", "_is_proxy", "_idle")

    def __init__(self, through: Addr, is_proxy: bool = True) -> None:
        self._through = through
        self._is_proxy = is_proxy
        self._idle: list[Client] = []

    async def get(self, authority: str) -> Response:
        """OSError or ValueError if no whole response comes."""
        client = self._idle.pop() if self._idle else await connect(self._through)
        response = await client.get(f"http://{authority}/" if self._is_proxy else "/", authority)
        if client.is_open:
            self._idle.append(client)
        return response

    def close(self) -> None:
        for client in self._idle:
            client.close()


async def fetch(addr: Addr, path: str) -> Response:
    """One GET on a connection of its own; OSError (ConnectionError) if that fails."""
    client = await connect(addr)
    try:
        return await client.get(path, str(addr))
    finally:
        client.close()


async def _exactly(reader: StreamReader, size: int) -> bytes:
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        raise ConnectionError("closed in the middle of a body") from None


async def _chunks(reader: StreamReader) -> AsyncIterator[bytes]:
    while size := await _chunk_size(reader):
        yield await _exactly(reader, size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass


async def _chunk_size(reader: StreamReader) -> int:
    try:
        return int((await reader.readline()).partition(b";")[0], 16)
    except ValueError:
        raise ConnectionError("closed in the middle of a chunked body") from None
