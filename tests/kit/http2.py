"""HTTP/2 by the h2 library, independent of the product: a client of one connection, without a socket, and an app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

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


class Asked:
    """What has come of one request."""

    def __init__(self, stream_id: int, fields: list[tuple[Any, Any]]) -> None:
        self.stream_id = stream_id
        self.fields = fields
        self.body = b""
        self.trailers: list[tuple[Any, Any]] = []


class Http2Server:
    """One connection of a server: `feed` it what came, `take` what is to be sent.

    `on_head` and `on_whole` are called with each request, when its head has come and when all of it has. They `respond`, or do to
    `h2` what no server would. Bodies leave as the peer's windows allow.
    """

    def __init__(
        self,
        on_head: OnRequest | None = None,
        on_whole: OnRequest | None = None,
        *,
        encoding: str | None = "utf-8",
        takes_anything: bool = False,
        streams: int = 100,
    ) -> None:
        """Without an `encoding` fields are bytes. One that `takes_anything` passes on requests that are not valid. `streams` is how
        many the client may open at once."""
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=False, header_encoding=encoding, validate_inbound_headers=not takes_anything
            )
        )
        self._on_head = on_head
        self._on_whole = on_whole
        self._asked: dict[int, Asked] = {}
        self._unsent: dict[int, tuple[bytes, Sequence[tuple[Any, Any]]]] = {}
        self.h2.initiate_connection()
        if streams != 100:
            self.h2.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: streams})

    def take(self) -> bytes:
        """All that is to be sent now."""
        return bytes(self.h2.data_to_send())

    def feed(self, data: bytes) -> None:
        """What the client sent. ProtocolError if it broke the rules: what it is told of that can be taken then."""
        for event in self.h2.receive_data(data):
            self._hear(event)
        for stream_id in list(self._unsent):
            self._send(stream_id)

    def respond(
        self,
        stream_id: int,
        fields: Sequence[tuple[Any, Any]],
        body: bytes = b"",
        trailers: Sequence[tuple[Any, Any]] = (),
    ) -> None:
        """`:status` comes first in `fields`."""
        is_over = not body and not trailers
        self.h2.send_headers(stream_id, list(fields), end_stream=is_over)
        if not is_over:
            self._unsent[stream_id] = (body, trailers)
            self._send(stream_id)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes = b"") -> None:
        """Until the client ends the connection or breaks the rules; `first` was read of it already."""
        writer.write(self.take())
        try:
            data = first or await reader.read(65536)
            while data:
                self.feed(data)
                writer.write(self.take())
                await writer.drain()
                data = await reader.read(65536)
        except h2.exceptions.ProtocolError:
            writer.write(self.take())
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _hear(self, event: Any) -> None:
        asked = self._asked.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, h2.events.RequestReceived):
            asked = self._asked[event.stream_id] = Asked(event.stream_id, list(event.headers))
            if self._on_head is not None:
                self._on_head(self, asked)
        elif isinstance(event, h2.events.DataReceived) and asked is not None:
            asked.body += event.data or b""
            if event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived) and asked is not None:
            asked.trailers = list(event.headers)
        elif isinstance(event, h2.events.StreamReset):
            self._asked.pop(event.stream_id, None)
            self._unsent.pop(event.stream_id, None)
        elif isinstance(event, h2.events.StreamEnded) and asked is not None:
            del self._asked[asked.stream_id]
            if self._on_whole is not None:
                self._on_whole(self, asked)

    def _send(self, stream_id: int) -> None:
        body, trailers = self._unsent.pop(stream_id)
        while body:
            room = min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size)
            if room <= 0:
                self._unsent[stream_id] = (body, trailers)
                return
            self.h2.send_data(stream_id, body[:room], end_stream=len(body) <= room and not trailers)
            body = body[room:]
        if trailers:
            self.h2.send_headers(stream_id, list(trailers), end_stream=True)


OnRequest = Callable[[Http2Server, Asked], None]


def http2_app(answer: Callable[[Fields], tuple[Fields, bytes] | int], seen: list[Fields] | None = None) -> Serve:
    """An HTTP/2 server for `asyncio.start_server`: the fields (`:status` first) and the body that `answer` gives to a
    request's head, or the error code that its stream is reset with. `seen` gets the requests, which need not be valid."""

    def respond(server: Http2Server, asked: Asked) -> None:
        if seen is not None:
            seen.append(asked.fields)
        answered = answer(asked.fields)
        if isinstance(answered, int):
            server.h2.reset_stream(asked.stream_id, answered)
        else:
            server.respond(asked.stream_id, *answered)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Http2Server(respond, takes_anything=True).serve(reader, writer)

    return serve


def ok(body: bytes = b"ok", *more: tuple[str, str]) -> tuple[Fields, bytes]:
    return [(":status", "200"), *more], body
