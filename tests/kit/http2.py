"""HTTP/2 by the h2 library, independent of the product: a client of one connection, without a socket, and an app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions

Fields = list[tuple[str, str]]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]

_PING, _GOAWAY = 6, 7


class Answered:
    """What has come of one response so far."""

    def __init__(self) -> None:
        self.headers: Fields = []
        self.body = b""
        self.trailers: Fields = []
        self.reset: int | None = None
        """The code, if the stream was reset."""
        self.is_over = False
        self.has_eof = False
        """Whether the connection ended before the response did."""

    @property
    def status(self) -> str:
        return dict(self.headers).get(":status", "")


class Http2Client:
    """`ask` for something, `take` what is to be sent, `feed` what came; `answers` has each response by its stream.

    Requests are sent as given, valid or not. GOAWAY and PING are kept from h2, which accepts no answer at all
    behind a GOAWAY, not even behind a graceful one.
    """

    def __init__(self) -> None:
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_outbound_headers=False)
        )
        self.answers: dict[int, Answered] = {}
        self.goaways: list[int] = []
        """Their error codes."""
        self._unread = b""
        self._pongs = b""
        self.h2.initiate_connection()

    def ask(self, headers: Fields, body: bytes = b"", is_whole: bool = True) -> int:
        """Begin a request, and end it if it is whole. Returns its stream."""
        stream_id: int = self.h2.get_next_available_stream_id()
        self.answers[stream_id] = Answered()
        self.h2.send_headers(stream_id, headers, end_stream=is_whole and not body)
        if body:
            self.h2.send_data(stream_id, body, end_stream=is_whole)
        return stream_id

    def get(self, path: str = "/", *more: tuple[str, str], method: str = "GET", authority: str = "x") -> int:
        pseudo = [(":method", method), (":scheme", "http"), (":authority", authority), (":path", path)]
        return self.ask([*pseudo, *more])

    def take(self) -> bytes:
        """All that is to be sent now."""
        data: bytes = self._pongs + self.h2.data_to_send()
        self._pongs = b""
        return data

    def feed(self, data: bytes) -> None:
        """Take in what the other side sent; empty bytes stand for its end."""
        if not data:
            for one in self.answers.values():
                if not one.is_over:
                    one.is_over = one.has_eof = True
        for event in self.h2.receive_data(self._frames(data)):
            self._hear(event)

    def _frames(self, data: bytes) -> bytes:
        """The whole frames, without those that are kept from h2."""
        data = self._unread + data
        kept = b""
        while len(data) >= 9 and len(data) >= (end := 9 + int.from_bytes(data[:3], "big")):
            frame, data = data[:end], data[end:]
            if frame[3] == _GOAWAY:
                self.goaways.append(int.from_bytes(frame[13:17], "big"))
            elif frame[3] != _PING:
                kept += frame
            elif not frame[4] & 1:
                self._pongs += frame[:4] + b"\x01" + frame[5:]
        self._unread = data
        return kept

    def _hear(self, event: Any) -> None:
        answered = self.answers.get(getattr(event, "stream_id", None) or 0)
        if answered is None:
            return
        if isinstance(event, h2.events.ResponseReceived):
            answered.headers = list(event.headers)  # type: ignore[arg-type]
        elif isinstance(event, h2.events.DataReceived):
            answered.body += event.data or b""
            if event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            answered.trailers = list(event.headers)  # type: ignore[arg-type]
        elif isinstance(event, h2.events.StreamReset):
            answered.reset = int(event.error_code)
            answered.is_over = True
        elif isinstance(event, h2.events.StreamEnded):
            answered.is_over = True


def http2_app(answer: Callable[[Fields], tuple[Fields, bytes] | int], seen: list[Fields] | None = None) -> Serve:
    """An HTTP/2 server for `asyncio.start_server`. `answer` returns, for each request, the fields (`:status` first)
    and the body, or the error code to reset the stream with. `seen` gets the requests, which need not be valid.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8", validate_inbound_headers=False)
        )
        server.initiate_connection()
        writer.write(server.data_to_send())
        try:
            while data := await reader.read(65536):
                for event in server.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        fields: Any = event.headers
                        if seen is not None:
                            seen.append(list(fields))
                        _respond(server, event.stream_id, answer(list(fields)))
                writer.write(server.data_to_send())
        except (ConnectionError, h2.exceptions.ProtocolError):
            pass
        finally:
            writer.close()

    return serve


def _respond(server: h2.connection.H2Connection, stream_id: int, answer: tuple[Fields, bytes] | int) -> None:
    if isinstance(answer, int):
        server.reset_stream(stream_id, answer)
        return
    fields, body = answer
    server.send_headers(stream_id, fields, end_stream=not body)
    if body:
        server.send_data(stream_id, body, end_stream=True)


def ok(body: bytes = b"ok", *more: tuple[str, str]) -> tuple[Fields, bytes]:
    return [(":status", "200"), *more], body
