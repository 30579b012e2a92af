"""The peers of the matrix: both ends of a link through the proxy, each spoken by an independent library, `h11` or `h2`.

A case states what a peer does (`request`, `respond`, `send`, `finish`, `give_up`, `slow`) and looks at the Message
that arrived; it does not depend on the version of HTTP. What a peer sends is cut into pieces before a codec sees
it, and nothing is fed to a connection that is paused, as no socket would.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import h2.config
import h2.connection
import h2.events
import h2.settings
import h11

from proxy.core.failure.reason import Reason
from proxy.http.h2.frames import frame
from tests.http.h2.kit import frames, raw
from tests.kit import ListWire

Cut = Callable[[bytes], list[bytes]]
Fields = list[tuple[bytes, bytes]]

READ_BYTES = 65536
"""The most that one read of a socket returns."""
BYTEWISE_BYTES = 2048
"""How much of one read is cut as the column of the matrix requires; the rest comes in pieces of 997 octets."""


@dataclass
class Message:
    """What a peer has got of one request or response."""

    start: str = ""
    """Method or status."""
    fields: dict[bytes, bytes] = field(default_factory=dict)
    informational: list[int] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    """The body; for a tunnel, the bytes that came through it."""
    trailers: Fields = field(default_factory=list)
    has_ended: bool = False
    was_reset: bool = False
    """Whether the stream was reset, or its connection broke off."""

    def is_whole(self, start: str, body: bytes = b"", trailers: Fields | None = None) -> bool:
        assert (self.start, bytes(self.body), self.trailers) == (start, body, trailers or [])
        assert self.has_ended and not self.was_reset
        return True


class End(Protocol):
    """A peer of the proxy. `size` is the announced length of a body: None if only its end shows the length, 0 for no
    body.
    """

    wire: ListWire
    message: Message
    fed: int
    """How many octets of the body and its framing the codec was fed."""
    is_gone: bool

    def request(self, method: bytes, size: int | None, *fields: tuple[bytes, bytes], protocol: bytes = b"") -> None:
        """Send a request. With `protocol` it asks for an upgrade, by `Upgrade` or by extended CONNECT."""

    def respond(self, status: int, size: int | None, *fields: tuple[bytes, bytes]) -> None: ...

    def inform(self, status: int) -> None: ...

    def accept(self) -> None:
        """Accept the tunnel that was asked for, with 101 or 200."""

    def send(self, data: bytes) -> None: ...

    def finish(self, trailers: Fields | None = None) -> None: ...

    def give_up(self) -> None: ...

    def end_request(self) -> None:
        """Send what must be sent, after an early answer, before another request can be."""

    def close(self) -> None:
        """Announce that no further request follows: by FIN, or by GOAWAY."""

    def slow(self, how: str) -> None:
        """Become slow. `socket`: read nothing more from the socket. `window`: read everything and give no credit
        (HTTP/2).
        """

    def hurry(self) -> None:
        """Read everything again."""

    def move(self) -> bool:
        """Deliver what was sent and read what has come. Returns whether anything moved."""


class Socket:
    """The part of an End that does not depend on the protocol."""

    def __init__(self, wire: ListWire, cut: Cut) -> None:
        self.wire = wire
        self.message = Message()
        self.fed = 0
        self.is_gone = False
        self._cut = cut
        self._said = b""
        self._pieces: deque[bytes] = deque()
        self._is_slow = False
        self._has_eof = False
        self._is_told = False

    @property
    def codec(self) -> Any:
        return self.wire.codec

    def say(self, data: bytes) -> None:
        self._said += data

    def _cut_up(self) -> None:
        """What was sent since the last delivery, cut into reads of a socket and pieces of these."""
        said, self._said = self._said, b""
        for at in range(0, len(said), READ_BYTES):
            read = said[at : at + READ_BYTES]
            self._pieces.extend(self._cut(read[:BYTEWISE_BYTES]) if len(read) > BYTEWISE_BYTES else self._cut(read))
            rest = read[BYTEWISE_BYTES:]
            self._pieces.extend(rest[at : at + 997] for at in range(0, len(rest), 997))

    def deliver(self) -> bool:
        moved = False
        self._cut_up()
        while self._pieces and not self.wire.is_paused and not self._is_told and self.wire.aborted is None:
            moved = True
            piece = self._pieces.popleft()
            self.fed += len(piece)
            self.codec.feed(piece)
        if self._has_eof and not self._pieces and not self.wire.is_paused and self.wire.aborted is None:
            self._has_eof = False
            self.codec.eof()
            moved = True
        return moved

    def end_if_over(self) -> None:
        """If the connection is aborted, or both directions have ended, tell its codec that it is lost."""
        if not self._is_told and (self.wire.aborted is not None or (self.is_gone and self.wire.has_ended)):
            self.leave(self.wire.aborted or Reason.COMPLETE)

    def leave(self, reason: Reason) -> None:
        if not self._is_told:
            self._is_told = self.is_gone = True
            self.codec.lost(reason)

    def slow(self, how: str) -> None:
        self._is_slow = True
        self.codec.writable(False)

    def hurry(self) -> None:
        if self._is_slow:
            self._is_slow = False
            self.codec.writable(True)


class H1End(Socket):
    def __init__(self, wire: ListWire, cut: Cut, is_client: bool) -> None:
        super().__init__(wire, cut)
        self._lib: Any = h11.Connection(h11.CLIENT if is_client else h11.SERVER, max_incomplete_event_size=1 << 20)
        self._is_tunnel = False
        self._is_asking = False
        """True after a request for a tunnel: bytes behind the request belong to the tunnel, if it is accepted."""

    def request(self, method: bytes, size: int | None, *fields: tuple[bytes, bytes], protocol: bytes = b"") -> None:
        self._begin_again()
        self.message = Message()
        self._is_asking = bool(protocol) or method == b"CONNECT"
        upgrade = [(b"Connection", b"upgrade"), (b"Upgrade", protocol)] if protocol else []
        target = b"svc:80" if method == b"CONNECT" else b"/"
        heads = [(b"Host", b"svc"), *_framing(size), *upgrade, *fields]
        self._write(h11.Request(method=method, target=target, headers=heads))
        if size == 0:
            self._write(h11.EndOfMessage())

    def respond(self, status: int, size: int | None, *fields: tuple[bytes, bytes]) -> None:
        is_bodiless = status in (204, 304) or self.message.start == "HEAD"
        framing = [] if is_bodiless else _framing(size) or [(b"Content-Length", b"0")]
        self._write(h11.Response(status_code=status, headers=[(b"Date", b"today"), *framing, *fields]))
        if size == 0 or is_bodiless:
            self._write(h11.EndOfMessage())

    def respond_until_close(self, body: bytes) -> None:
        self.say(b"HTTP/1.1 200 OK\r\nDate: today\r\n\r\n" + body)
        self._has_eof = self.is_gone = True

    def inform(self, status: int) -> None:
        self._write(h11.InformationalResponse(status_code=status, headers=[]))

    def accept(self) -> None:
        if self.message.start == "CONNECT":
            self._write(h11.Response(status_code=200, headers=[(b"Date", b"today")]))
        else:
            fields = [(b"Date", b"today"), (b"Connection", b"upgrade"), (b"Upgrade", self.message.fields[b"upgrade"])]
            self._write(h11.InformationalResponse(status_code=101, headers=fields))
        self._begin_tunnel()

    def send(self, data: bytes) -> None:
        if self._is_tunnel or self._is_asking:
            self.say(data)
        else:
            self._write(h11.Data(data=data))

    def finish(self, trailers: Fields | None = None) -> None:
        if self._is_tunnel or self._is_asking:
            self._has_eof = self.is_gone = True
        else:
            self._write(h11.EndOfMessage(headers=trailers or []))

    def give_up(self) -> None:
        self._said = b""
        self._pieces.clear()
        self.leave(Reason.CONNECTION_RESET)

    def close(self) -> None:
        self._has_eof = self.is_gone = True

    def end_request(self) -> None:
        if self._lib.our_state is h11.SEND_BODY:
            self._lib.send(h11.EndOfMessage())
            self.say(b"0\r\n\r\n")

    def move(self) -> bool:
        moved = self.deliver()
        data = b"" if self._is_slow else self.wire.take()
        if data:
            self._hear(data)
        self._see_the_end()
        self.end_if_over()
        return moved or bool(data)

    def _write(self, event: Any) -> None:
        self.say(self._lib.send(event))

    def _hear(self, data: bytes) -> None:
        if self._is_tunnel:
            self.message.body += data
            return
        if self._lib.our_role is h11.SERVER:
            self._begin_again()
        self._lib.receive_data(data)
        while (event := self._lib.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.ConnectionClosed):
                break
            self._note(event)
            if self._lib.their_state is h11.SWITCHED_PROTOCOL:
                self._begin_tunnel()
                break

    def _note(self, event: Any) -> None:
        if isinstance(event, h11.Request):
            self.message = Message(event.method.decode(), dict(event.headers))
        elif isinstance(event, h11.Response) or (
            isinstance(event, h11.InformationalResponse) and event.status_code == 101
        ):
            self.message.start = str(event.status_code)
            self.message.fields = dict(event.headers)
        elif isinstance(event, h11.InformationalResponse):
            self.message.informational.append(event.status_code)
        elif isinstance(event, h11.Data):
            self.message.body += event.data
        elif isinstance(event, h11.EndOfMessage):
            self.message.trailers = list(event.headers)
            self.message.has_ended = True

    def _begin_again(self) -> None:
        if set(self._lib.states.values()) == {h11.DONE}:
            self._lib.start_next_cycle()

    def _begin_tunnel(self) -> None:
        self._is_tunnel = True
        self.message.has_ended = False
        self.message.body += self._lib.trailing_data[0]

    def _see_the_end(self) -> None:
        message = self.message
        aborted = self.wire.aborted
        if self._is_tunnel:
            message.has_ended = message.has_ended or self.wire.has_ended
        if aborted not in (None, Reason.COMPLETE) or (self.wire.has_ended and not message.has_ended):
            message.was_reset = message.was_reset or not message.has_ended or aborted is not None


class H2End(Socket):
    def __init__(self, wire: ListWire, cut: Cut, is_client: bool) -> None:
        super().__init__(wire, cut)
        config = h2.config.H2Configuration(
            client_side=is_client, header_encoding=None, validate_outbound_headers=False, validate_inbound_headers=False
        )
        self._lib: Any = h2.connection.H2Connection(config)
        if not is_client:
            self._lib.local_settings = h2.settings.Settings(
                client=False, initial_values={h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL: 1}
            )
        self._lib.initiate_connection()
        self.number = 0
        self.has_goaway = False
        self._is_tunnel = False
        self._unsent = bytearray()
        self._end: Fields | None = None
        """The trailers that follow what is still unsent; an empty list is an end without trailers."""
        self._has_credit = True
        self._uncredited = 0

    def request(self, method: bytes, size: int | None, *fields: tuple[bytes, bytes], protocol: bytes = b"") -> None:
        self.number = self._lib.get_next_available_stream_id()
        self._forget_unsent()
        self.message = Message()
        head = [(b":method", method), (b":scheme", b"http"), (b":authority", b"svc"), (b":path", b"/")]
        if protocol:
            head = [(b":method", b"CONNECT"), (b":protocol", protocol), *head[1:]]
        elif method == b"CONNECT":
            head = [(b":method", method), (b":authority", b"svc:80")]
        is_over = size == 0 and not protocol and method != b"CONNECT"
        self._lib.send_headers(self.number, [*head, *_length(size), *fields], end_stream=is_over)

    def respond(self, status: int, size: int | None, *fields: tuple[bytes, bytes]) -> None:
        head = [(b":status", b"%d" % status), (b"date", b"today"), *_length(size), *fields]
        self._lib.send_headers(self.number, head, end_stream=size == 0)

    def inform(self, status: int) -> None:
        self._lib.send_headers(self.number, [(b":status", b"%d" % status)])

    def accept(self) -> None:
        self.respond(200, None)

    def send(self, data: bytes) -> None:
        self._unsent += data

    def finish(self, trailers: Fields | None = None) -> None:
        self._end = trailers or []

    def give_up(self) -> None:
        self._forget_unsent()
        self._lib.reset_stream(self.number, 8)

    def close(self) -> None:
        """Close; the GOAWAY of a server names the last stream that it has seen."""
        self.say(self._lib.data_to_send() + frame.goaway(0 if self._lib.config.client_side else self.number, 0))

    def end_request(self) -> None:
        """Does nothing: whatever happens to a stream, the next request has another one."""

    def narrow(self, window: int) -> None:
        """Announce this initial window for streams."""
        self._lib.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})

    def refuse(self) -> None:
        """Send a GOAWAY with a number below the stream's."""
        self.say(self._lib.data_to_send() + frame.goaway(0, 0))

    def slow(self, how: str) -> None:
        if how == "window":
            self._has_credit = False
        else:
            super().slow(how)

    def hurry(self) -> None:
        self._has_credit = True
        super().hurry()

    def move(self) -> bool:
        self._pump()
        self.say(self._lib.data_to_send())
        moved = self.deliver()
        data = b"" if self._is_slow else self.wire.take()
        for event in self._lib.receive_data(self._without_goaway(data)) if data else ():
            self._hear(event)
        if self._has_credit and self._uncredited:
            moved = True
            self._give_credit()
        if self.wire.is_over and not self.message.has_ended:
            self.message.was_reset = True
        self.end_if_over()
        return moved or bool(data)

    def _forget_unsent(self) -> None:
        self._unsent.clear()
        self._end = None

    def _give_credit(self) -> None:
        count, self._uncredited = self._uncredited, 0
        self._lib.increment_flow_control_window(count)
        if not self.message.has_ended and not self.message.was_reset:
            self._lib.increment_flow_control_window(count, self.number)

    def _pump(self) -> None:
        while self._unsent and (room := min(16384, self._lib.local_flow_control_window(self.number))) > 0:
            self._lib.send_data(self.number, bytes(self._unsent[:room]))
            del self._unsent[:room]
        if self._end is not None and not self._unsent:
            end, self._end = self._end, None
            if end:
                self._lib.send_headers(self.number, end, end_stream=True)
            else:
                self._lib.end_stream(self.number)

    def _without_goaway(self, data: bytes) -> bytes:
        """Bytes without GOAWAY frames: the library accepts nothing behind one, not even behind a graceful one."""
        rest = data[: len(frame.PREFACE)] if data.startswith(frame.PREFACE) else b""
        for kind, flags, stream, payload in frames(data[len(rest) :]):
            if kind == frame.GOAWAY:
                self.has_goaway = True
            else:
                rest += raw(kind, flags, stream, payload)
        return rest

    def _hear(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self.number = event.stream_id
            self.message = Message(dict(event.headers)[b":method"].decode(), dict(event.headers))
            return
        message = self.message
        if getattr(event, "stream_id", self.number) != self.number:
            return
        if isinstance(event, h2.events.InformationalResponseReceived):
            message.informational.append(int(dict(event.headers)[b":status"]))
        elif isinstance(event, h2.events.ResponseReceived):
            message.fields = dict(event.headers)
            message.start = message.fields[b":status"].decode()
        elif isinstance(event, h2.events.DataReceived):
            message.body += event.data
            self._uncredited += event.flow_controlled_length or 0
        elif isinstance(event, h2.events.TrailersReceived):
            message.trailers = [(bytes(name), bytes(value)) for name, value in event.headers]
        elif isinstance(event, h2.events.StreamEnded):
            message.has_ended = True
        elif isinstance(event, h2.events.StreamReset):
            message.was_reset = not message.has_ended or event.error_code != 0
            self._forget_unsent()


def _framing(size: int | None) -> Fields:
    """The framing fields of a body, as HTTP/1 needs them."""
    if size is None:
        return [(b"Transfer-Encoding", b"chunked")]
    return [(b"Content-Length", b"%d" % size)] if size else []


def _length(size: int | None) -> Fields:
    return [(b"content-length", b"%d" % size)] if size else []
