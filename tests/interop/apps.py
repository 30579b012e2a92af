"""The app behind the proxies: HTTP/1 by h11, HTTP/2 by h2, on one port; it answers with what it was asked.

/echo       a JSON object: method, path, fields, body's size and hash, trailers
/bytes/N    N octets
/trailers   a chunked body and a trailer field
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import struct
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import h11

from tests.interop.background import Background
from tests.kit.http2 import Asked, Http2Server

_PREFACE: Final = b"PRI * HTTP/2.0"
_READ_BYTES: Final = 1 << 16
_TOLD_BYTES: Final = 2048

Fields = list[tuple[bytes, bytes]]

ZIPPED: Final = "/zipped.Test/Output"
_ZIPPED_MESSAGE: Final = gzip.compress(b"small again" * 100, mtime=0)
ZIPPED_MESSAGES: Final = b"".join(
    struct.pack("!BI", is_zipped, len(one)) + one for is_zipped, one in ((1, _ZIPPED_MESSAGE), (0, b"as it is"))
)


@dataclass
class Request:
    method: bytes
    path: bytes
    fields: Fields
    body: bytes = b""
    trailers: Fields = field(default_factory=list)

    def told(self) -> bytes:
        """What came, as JSON: names in lower case, in their order. It is padded, so that what proxies add does not
        change its length.
        """
        text = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in self.fields]
        found = {
            "method": self.method.decode(),
            "path": self.path.decode(),
            "fields": text,
            "size": len(self.body),
            "sha256": hashlib.sha256(self.body).hexdigest(),
            "trailers": [(name.decode().lower(), value.decode()) for name, value in self.trailers],
        }
        return json.dumps(found).encode().ljust(_TOLD_BYTES)


@dataclass
class Answer:
    body: bytes
    trailers: Fields = field(default_factory=list)
    is_chunked: bool = False
    fields: Fields = field(default_factory=list)


def answer(request: Request) -> Answer:
    if request.path.startswith(b"/bytes/"):
        size = int(request.path.rpartition(b"/")[2])
        return Answer((b"0123456789abcdef" * (size // 16 + 1))[:size])
    if request.path == b"/trailers":
        return Answer(b"a body with a trailer", [(b"x-after", b"all")], True)
    if request.path == ZIPPED.encode():
        fields = [(b"content-type", b"application/grpc"), (b"grpc-encoding", b"gzip")]
        return Answer(ZIPPED_MESSAGES, [(b"grpc-status", b"0")], True, fields)
    return Answer(request.told())


class EchoApp:
    """Serves in a thread of its own, as long as its context is open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[Request] = []
        """The requests that came over HTTP/2, in order."""

    def __enter__(self) -> Self:
        self._background = Background("echo app")
        self._background.listen(self._serve, self.port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(_READ_BYTES)
        try:
            if first.startswith(_PREFACE[: len(first)]):
                await Http2Server(on_whole=self._answer, encoding=None).serve(reader, writer, first)
            else:
                await _serve_http1(reader, writer, first)
        except h11.RemoteProtocolError:
            pass

    def _answer(self, server: Http2Server, asked: Asked) -> None:
        pseudo = {name: value for name, value in asked.fields if name.startswith(b":")}
        plain = [(name, value) for name, value in asked.fields if not name.startswith(b":")]
        fields = [(b"host", pseudo.get(b":authority", b"")), *plain]
        request = Request(pseudo[b":method"], pseudo[b":path"], fields, asked.body, asked.trailers)
        self.requests.append(request)
        _answer_http2(server, request, asked.stream_id)


async def _serve_http1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes) -> None:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(first)
    request: Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                writer.write(
                    _said(connection, h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
                )
            connection.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Request):
            request = Request(event.method, event.target, list(event.headers.raw_items()))
        elif isinstance(event, h11.Data):
            assert request is not None
            request.body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            request.trailers = list(event.headers.raw_items())
            _answer_http1(connection, writer, request)
            await writer.drain()
            if connection.our_state is not h11.DONE:
                return
            connection.start_next_cycle()
        else:
            return


def _answer_http1(connection: h11.Connection, writer: asyncio.StreamWriter, request: Request) -> None:
    what = answer(request)
    framing = (b"Transfer-Encoding", b"chunked") if what.is_chunked else (b"Content-Length", b"%d" % len(what.body))
    # HTTP/1.0 clients get no chunks; h11 sees to that.
    head = h11.Response(status_code=200, headers=[(b"Server", b"echo"), framing], reason=b"Fine")
    writer.write(_said(connection, head))
    if request.method != b"HEAD":
        writer.write(_said(connection, h11.Data(data=what.body)))
    writer.write(_said(connection, h11.EndOfMessage(headers=what.trailers)))


def _said(connection: h11.Connection, event: h11.Event) -> bytes:
    return connection.send(event) or b""


def _answer_http2(server: Http2Server, request: Request, stream_id: int) -> None:
    what = answer(request)
    head = [(b":status", b"200"), (b"server", b"echo"), *what.fields]
    if not what.is_chunked:
        head.append((b"content-length", b"%d" % len(what.body)))
    if request.method == b"HEAD":
        server.respond(stream_id, head)
    else:
        server.respond(stream_id, head, what.body, what.trailers)
