"""The demo's HTTP/2, by the h2 library: independent of the proxy's codecs, at both ends of the mesh.

As demo_http, for loopback and for well-behaved peers; a surprise is a ConnectionError, never a guess. A stream
that is reset fails its own request only.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import H2Error

from proxy.cli.demo.http import Answer, Request, Response
from proxy.core.address.addr import Addr

PREFACE_HEAD: Final = "PRI * HTTP/2.0"
"""The start line of a connection that begins with HTTP/2 (RFC 9113, section 3.4)."""

if TYPE_CHECKING:
    from hyperframe.frame import Frame, GoAwayFrame

_READ_BYTES: Final = 65536


async def serve_http2(first: bytes, reader: StreamReader, writer: StreamWriter, answer: Answer) -> None:
    """Answer all requests of a connection, `first` being what was read of it, until it ends. ConnectionError if h2 objects."""
    connection = _connection(is_client=False)
    connection.initiate_connection()
    requests: dict[int, Request] = {}
    answering: set[asyncio.Task[None]] = set()

    async def respond(stream: int, request: Request) -> None:
        response = await answer(request)
        with suppress(H2Error):
            _send(connection, stream, response)
            writer.write(connection.data_to_send())

    try:
        async for event in _events(connection, reader, writer, first):
            match event:
                case RequestReceived():
                    fields = _fields(event.headers)
                    requests[event.stream_id] = Request("HTTP/2", fields[":method"], fields)
                case DataReceived() if request := requests.get(event.stream_id):
                    requests[event.stream_id] = request._replace(body_bytes=request.body_bytes + len(event.data))
                case StreamReset():
                    requests.pop(event.stream_id, None)
                case StreamEnded() if request := requests.pop(event.stream_id, None):
                    task = asyncio.create_task(respond(event.stream_id, request))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
                case ConnectionTerminated():
                    return
    finally:
        for task in answering:
            task.cancel()


class _Exchange:
    """What has come of one response."""

    __slots__ = ("done", "fields", "body")

    def __init__(self) -> None:
        self.done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.fields: dict[str, str] = {}
        self.body = b""


class Http2Client:
    """One connection that carries many requests at once."""

    __slots__ = ("_reader", "_writer", "_connection", "_exchanges", "_reading", "is_open")

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._connection = _connection(is_client=True)
        self._connection.initiate_connection()
        self._exchanges: dict[int, _Exchange] = {}
        self.is_open = True
        self._reading = asyncio.create_task(self._read())

    @property
    def has_room(self) -> bool:
        """Whether the peer allows another request now."""
        return self.is_open and len(self._exchanges) < self._connection.remote_settings.max_concurrent_streams

    async def get(self, path: str, authority: str) -> Response:
        """ConnectionError if no whole response comes."""
        if not self.is_open:
            raise ConnectionError("the connection has ended")
        exchange = _Exchange()
        try:
            stream = self._connection.get_next_available_stream_id()
            pseudo = {":method": "GET", ":scheme": "http", ":authority": authority, ":path": path}
            self._connection.send_headers(stream, list(pseudo.items()), end_stream=True)
        except H2Error as error:
            raise ConnectionError(f"HTTP/2: {error}") from None
        self._exchanges[stream] = exchange
        self._writer.write(self._connection.data_to_send())
        try:
            return await exchange.done
        finally:
            self._exchanges.pop(stream, None)

    def close(self) -> None:
        self.is_open = False
        self._reading.cancel()
        self._writer.close()

    async def _read(self) -> None:
        reason = "closed without a response"
        try:
            async for event in _events(self._connection, self._reader, self._writer):
                self._take(event)
        except OSError as error:
            reason = str(error)
        finally:
            self.is_open = False
            self._writer.close()
            for exchange in self._exchanges.values():
                _fail(exchange, reason)

    def _take(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self.is_open = False
            return
        stream = getattr(event, "stream_id", None)
        exchange = self._exchanges.get(stream) if stream is not None else None
        if exchange is None:
            return
        match event:
            case ResponseReceived():
                exchange.fields = _fields(event.headers)
            case DataReceived():
                exchange.body += event.data
            case StreamReset():
                _fail(exchange, f"stream reset with code {int(event.error_code)}")
            case StreamEnded() if not exchange.done.done():
                status = int(exchange.fields.get(":status", "0"))
                exchange.done.set_result(Response(status, exchange.fields, exchange.body))


async def connect_http2(addr: Addr) -> Http2Client:
    return Http2Client(*await asyncio.open_connection(addr.ip, addr.port))


class Http2Requests:
    """GET requests on few connections, another only where the peer allows no more streams on those that are open."""

    __slots__ = ("_through", "_clients")

    def __init__(self, through: Addr) -> None:
        self._through = through
        self._clients: list[Http2Client] = []

    async def get(self, authority: str) -> Response:
        """OSError if that fails."""
        self._clients = [client for client in self._clients if client.is_open]
        client = next((client for client in self._clients if client.has_room), None)
        if client is None:
            client = await connect_http2(self._through)
            self._clients.append(client)
        return await client.get("/", authority)

    def close(self) -> None:
        for client in self._clients:
            client.close()


class _Client(H2Connection):
    """h2 takes a GOAWAY for the end of everything; the streams that run go on (RFC 9113, section 6.8)."""

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        state = self.state_machine.state
        answered = super()._receive_goaway_frame(frame)
        self.state_machine.state = state
        return answered


def _connection(is_client: bool) -> H2Connection:
    kind = _Client if is_client else H2Connection
    return kind(H2Configuration(client_side=is_client, header_encoding="utf-8"))


async def _events(
    connection: H2Connection, reader: StreamReader, writer: StreamWriter, first: bytes = b""
) -> AsyncIterator[Event]:
    """What the peer says until it closes; settings, pings and credit for bodies are answered here."""
    writer.write(connection.data_to_send())
    data = first or await reader.read(_READ_BYTES)
    while data:
        try:
            events = connection.receive_data(data)
            for event in events:
                if isinstance(event, DataReceived) and event.flow_controlled_length:
                    connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        except H2Error as error:
            writer.write(connection.data_to_send())
            raise ConnectionError(f"HTTP/2: {error}") from None
        for event in events:
            yield event
        writer.write(connection.data_to_send())
        data = await reader.read(_READ_BYTES)


def _fields(headers: Iterable[tuple[Any, Any]]) -> dict[str, str]:
    """The fields as a dict. The library is configured to decode them, so they are text already."""
    return dict(headers)


def _send(connection: H2Connection, stream: int, response: Response) -> None:
    connection.send_headers(stream, [(":status", str(response.status)), *response.fields.items()])
    connection.send_data(stream, response.body, end_stream=True)


def _fail(exchange: _Exchange, reason: str) -> None:
    if not exchange.done.done():
        exchange.done.set_exception(ConnectionError(reason))
