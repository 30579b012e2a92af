"""A second codec for the seams: exchanges side by side as lines of JSON. It stands for any protocol that is not HTTP/1.

Of the product it uses only Codec, Wire, Exchange, Pool and the heads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange, Stage
from proxy.http.head import UNKNOWN, RequestHead, ResponseHead
from proxy.http.headers import HOST, Field, field
from proxy.http.pool import Pool
from proxy.http.stream import ClientEnd, ServerEnd


def text_of(fields: list[Field]) -> list[list[str]]:
    return [[one.name.decode(), one.value.decode("latin-1")] for one in fields]


def fields_of(pairs: list[list[str]]) -> list[Field]:
    return [field(name.encode(), value.encode("latin-1")) for name, value in pairs]


class LineCodec(Codec):
    """What both roles share: lines to events, writability, the end."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.streams: dict[int, LineStream] = {}
        self.is_writable = True
        self.is_closing = False
        self._unread = b""
        self._paused: set[int] = set()

    def feed(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            event = json.loads(line)
            self.receive(event["id"], event["kind"], event)

    def eof(self) -> None:
        self.wire.abort(Reason.PEER_CLOSED)

    def writable(self, is_writable: bool) -> None:
        self.is_writable = is_writable
        for stream in list(self.streams.values()):
            stream.tell_writable(is_writable)

    def lost(self, reason: Reason) -> None:
        for stream in list(self.streams.values()):
            stream.forget()
            stream.told_reset(reason)

    def close(self) -> None:
        self.is_closing = True
        self.send(0, "goaway")
        if not self.streams:
            self.wire.end()

    def send(self, number: int, kind: str, **more: Any) -> None:
        self.wire.write(json.dumps({"id": number, "kind": kind, **more}).encode() + b"\n")

    def pause(self, number: int, is_paused: bool) -> None:
        (self._paused.add if is_paused else self._paused.discard)(number)
        (self.wire.pause_reading if self._paused else self.wire.resume_reading)()

    def receive(self, number: int, kind: str, event: dict[str, Any]) -> None:
        raise NotImplementedError


class LineStream:
    """One exchange's stream; its two directions end on their own."""

    def __init__(self, codec: LineCodec, number: int, receive: Callable[[LineStream], Any]) -> None:
        self.codec = codec
        self.number = number
        self.exchange: Any = None
        self._sent_end = False
        self._got_end = False
        self._pauses = 0
        self._receive = receive

    # ---- Stream

    def send_data(self, data: bytes, end: bool) -> None:
        if not self._sent_end:
            self.codec.send(self.number, "data", data=data.decode("latin-1"), end=end)
            self._ended(end)
        if not self.codec.is_writable:
            self.tell_writable(False)

    def send_trailers(self, fields: list[Field]) -> None:
        self.codec.send(self.number, "trailers", fields=text_of(fields))
        self._ended(True)

    def reset(self, reason: Reason) -> None:
        self.exchange = None
        if not (self._sent_end and self._got_end):
            self._sent_end = self._got_end = True
            self.codec.send(self.number, "reset", reason=reason.name)
        self.forget()

    def pause_reading(self, cause: int) -> None:
        self._pauses |= cause
        self.codec.pause(self.number, True)

    def resume_reading(self, cause: int) -> None:
        self._pauses &= ~cause
        self.codec.pause(self.number, bool(self._pauses))

    # ---- events

    def receive(self, kind: str, event: dict[str, Any]) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        end = event.get("end", kind == "trailers")
        self._got_end = self._got_end or end
        if self._got_end and self._sent_end:
            self.forget()
        to = self._receive(self)
        if kind == "data":
            to[0](event["data"].encode("latin-1"), end)
        elif kind == "trailers":
            to[1](fields_of(event["fields"]))
        elif kind == "reset":
            self.exchange = None
            self._sent_end = self._got_end = True
            self.forget()
            to[2](Reason.PEER_RESET)

    def told_reset(self, reason: Reason) -> None:
        exchange = self.exchange
        self.exchange = None
        if exchange is not None:
            self.exchange = exchange
            to = self._receive(self)
            self.exchange = None
            to[2](reason)

    def tell_writable(self, is_writable: bool) -> None:
        exchange = self.exchange
        if exchange is not None:
            if isinstance(self, LineServerStream):
                (exchange.server_ready if is_writable else exchange.server_blocked)()
            else:
                (exchange.client_ready if is_writable else exchange.client_blocked)()

    def forget(self) -> None:
        self.codec.pause(self.number, False)
        self.codec.streams.pop(self.number, None)
        if self.codec.is_closing and not self.codec.streams:
            self.codec.wire.end()

    def _ended(self, end: bool) -> None:
        self._sent_end = self._sent_end or end
        if self._sent_end and self._got_end:
            self.exchange = None
            self.forget()


class LineServerStream(LineStream, ServerEnd):
    def send_informational(self, head: ResponseHead) -> None:
        self.codec.send(self.number, "info", status=head.status, fields=text_of(head.fields))

    def send_head(self, head: ResponseHead, end: bool) -> None:
        self.codec.send(self.number, "head", status=head.status, fields=text_of(head.fields), end=end)
        if end and not self._got_end:
            self.reset(Reason.EARLY_RESPONSE)
        else:
            self._ended(end)

    def close_connection(self) -> None:
        self.codec.close()


class LineServer(LineCodec):
    def __init__(self, wire: Wire, stage: Stage) -> None:
        super().__init__(wire)
        self._stage = stage

    def receive(self, number: int, kind: str, event: dict[str, Any]) -> None:
        if kind != "head":
            stream = self.streams.get(number)
            if stream is not None:
                stream.receive(kind, event)
            return
        new = LineServerStream(self, number, _request_verbs)
        self.streams[number] = new
        end = event["end"]
        new._got_end = end
        head = RequestHead(
            event["method"].encode(), b"http", event["authority"].encode(), event["path"].encode(),
            fields_of(event["fields"]), 0 if end else UNKNOWN,
        )  # fmt: skip
        head.has_host = any(one.kind == HOST for one in head.fields)
        new.exchange = Exchange(new, head, 0.0)
        new.exchange.request_head(self._stage, end)


class LineClientStream(LineStream, ClientEnd):
    def end_sending(self) -> bool:
        return False

    def send_head(self, head: RequestHead, end: bool) -> None:
        self.codec.send(
            self.number,
            "head",
            method=head.method.decode(),
            authority=head.authority.decode(),
            path=head.path.decode("latin-1"),
            fields=text_of(head.fields),
            end=end,
        )
        self._ended(end)


class LineClient(LineCodec):
    def __init__(self, wire: Wire, pool: Pool) -> None:
        super().__init__(wire)
        self._pool = pool
        self._last = 0

    keep_alive_s = 0.0

    def is_stale(self) -> bool:
        return False

    def open(self, attempt: Attempt) -> None:
        self._last += 1
        stream = LineClientStream(self, self._last, _response_verbs)
        stream.exchange = attempt.exchange
        self.streams[self._last] = stream
        self._pool.release(self)
        attempt.exchange.attach(stream, attempt.head)

    def lost(self, reason: Reason) -> None:
        self._pool.retire(self)
        super().lost(reason)

    def receive(self, number: int, kind: str, event: dict[str, Any]) -> None:
        stream = self.streams.get(number)
        if kind == "goaway":
            self._pool.retire(self)
        elif stream is None or stream.exchange is None:
            return
        elif kind in ("info", "head"):
            head = ResponseHead(event["status"], fields_of(event["fields"]), 0 if event.get("end") else UNKNOWN)
            exchange = stream.exchange
            if kind == "info":
                exchange.response_informational(head)
                return
            if event["end"]:
                stream._got_end = True
                if stream._sent_end:
                    stream.forget()
            exchange.response_head(head, event["end"])
        else:
            stream.receive(kind, event)


def _request_verbs(stream: LineStream) -> Any:
    exchange = stream.exchange
    assert exchange is not None
    return exchange.request_data, exchange.request_trailers, exchange.request_reset


def _response_verbs(stream: LineStream) -> Any:
    exchange = stream.exchange
    assert exchange is not None
    return exchange.response_data, exchange.response_trailers, exchange.response_reset
