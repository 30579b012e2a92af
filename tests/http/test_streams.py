"""HTTP/1 and the fake second codec under the contract of streams (tests/kit/contract.py), and the two of them joined
by a pool.
"""

from __future__ import annotations

import json
from typing import Any

from proxy.core.failure.reason import Reason
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange, Stage
from proxy.http.h1.client import H1Client
from proxy.http.h1.server import H1Server
from proxy.http.pool import Pool
from tests.kit import Clock, ListWire, undated
from tests.kit.compare import dechunked
from tests.kit.contract import ClientEnd, ClientStreamContract, Seen, ServerEnd, ServerStreamContract
from tests.kit.line_codec import LineClient, LineServer
from tests.kit.pair import ToPool
from tests.kit.streams import FakeClient, FakeStage


class H1Peer:
    """The bytes of an HTTP/1 peer, whichever side it is on."""

    def __init__(self) -> None:
        self.wire = ListWire()
        self._got = b""
        self._is_chunked = False

    def send(self, data: bytes, end: bool) -> None:
        codec: Any = self.wire.codec
        codec.feed((b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + (b"0\r\n\r\n" if end else b""))

    def send_trailers(self) -> None:
        codec: Any = self.wire.codec
        codec.feed(b"0\r\nx-sum: 9\r\n\r\n")

    def give_up(self) -> None:
        codec: Any = self.wire.codec
        codec.lost(Reason.CONNECTION_RESET)

    def block(self, is_blocked: bool) -> None:
        codec: Any = self.wire.codec
        codec.writable(not is_blocked)

    def is_reading(self) -> bool:
        return not self.wire.is_paused

    def is_closing(self) -> bool:
        return self.wire.has_ended

    def seen(self) -> Seen:
        self._got += self.wire.take()
        seen = Seen(was_reset=self.wire.aborted not in (None, Reason.COMPLETE))
        rest = undated(self._got)
        while rest:
            head, mark, rest = rest.partition(b"\r\n\r\n")
            assert mark, head
            words = head.split(b" ")
            seen.start = (words[1] if words[0].startswith(b"HTTP/") else words[0]).decode()
            if not seen.start.startswith("1"):
                break
            seen.informational.append(int(seen.start))
        if b"Transfer-Encoding: chunked" in head:
            body, trailers, left = dechunked(rest.decode("latin-1"))
            if rest.endswith(b"\r\n\r\n") and rest not in (b"",) and (trailers or body.encode("latin-1") != rest):
                seen.body, seen.has_ended = body.encode("latin-1"), True
                seen.trailers = [(name.encode(), value.encode()) for name, value in trailers]
                assert not left
            else:
                seen.body = self._open_body(rest)
        elif seen.start:
            seen.has_ended = True
        return seen

    def _open_body(self, rest: bytes) -> bytes:
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        return body


class H1ServerEnd(H1Peer):
    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.wire.codec = H1Server(self.wire, stage, Clock())

    def request(self, has_body: bool) -> None:
        codec: Any = self.wire.codec
        codec.feed(b"POST / HTTP/1.1\r\nHost: svc\r\n" + b"Transfer-Encoding: chunked\r\n" * has_body + b"\r\n")


class H1ClientEnd(H1Peer):
    def __init__(self) -> None:
        super().__init__()
        self.client = H1Client(self.wire, Pool(lambda pool: self.client))
        self.wire.codec = self.client

    def open(self, exchange: Exchange) -> None:
        self.client.open(Attempt(exchange, exchange.request))

    def respond(self, status: int, has_body: bool) -> None:
        self.client.feed(b"HTTP/1.1 %d X\r\n" % status + b"Transfer-Encoding: chunked\r\n" * has_body + b"\r\n")


class TestH1Server(ServerStreamContract):
    def make(self, stage: Stage) -> ServerEnd:
        return H1ServerEnd(stage)


class TestH1Client(ClientStreamContract):
    def make(self) -> ClientEnd:
        return H1ClientEnd()


class LinePeer:
    def __init__(self) -> None:
        self.wire = ListWire()
        self._got: list[dict[str, Any]] = []

    def _feed(self, kind: str, **more: Any) -> None:
        codec: Any = self.wire.codec
        codec.feed(json.dumps({"id": 1, "kind": kind, **more}).encode() + b"\n")

    def send(self, data: bytes, end: bool) -> None:
        self._feed("data", data=data.decode(), end=end)

    def send_trailers(self) -> None:
        self._feed("trailers", fields=[["x-sum", "9"]])

    def give_up(self) -> None:
        self._feed("reset")

    def block(self, is_blocked: bool) -> None:
        codec: Any = self.wire.codec
        codec.writable(not is_blocked)

    def is_reading(self) -> bool:
        return not self.wire.is_paused

    def is_closing(self) -> bool:
        self.seen()
        return any(event["kind"] == "goaway" for event in self._got)

    def seen(self) -> Seen:
        self._got += [json.loads(line) for line in self.wire.take().splitlines()]
        seen = Seen()
        for event in self._got:
            kind = event["kind"]
            if kind == "info":
                seen.informational.append(event["status"])
            elif kind == "head":
                seen.start = str(event.get("status") or event["method"])
            elif kind == "data":
                seen.body += event["data"].encode()
            elif kind == "trailers":
                seen.trailers = [(name.encode(), value.encode()) for name, value in event["fields"]]
                seen.has_ended = True
            seen.was_reset = seen.was_reset or kind == "reset"
            seen.has_ended = seen.has_ended or bool(event.get("end"))
        return seen


class LineServerEnd(LinePeer):
    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.wire.codec = LineServer(self.wire, stage)

    def request(self, has_body: bool) -> None:
        self._feed("head", method="POST", authority="svc", path="/", fields=[], end=not has_body)


class LineClientEnd(LinePeer):
    def __init__(self) -> None:
        super().__init__()
        self.client = LineClient(self.wire, Pool(lambda pool: self.client))
        self.wire.codec = self.client

    def open(self, exchange: Exchange) -> None:
        self.client.open(Attempt(exchange, exchange.request))

    def respond(self, status: int, has_body: bool) -> None:
        self._feed("info" if status < 200 else "head", status=status, fields=[], end=not has_body and status >= 200)


class TestLineServer(ServerStreamContract):
    def make(self, stage: Stage) -> ServerEnd:
        return LineServerEnd(stage)


class TestLineClient(ClientStreamContract):
    def make(self) -> ClientEnd:
        return LineClientEnd()


def test_http1_to_the_second_codec_and_back() -> None:
    """Two proxies with the second codec between them: HTTP/1 goes in and comes out, and many exchanges share the link."""
    between, behind = ListWire(), ListWire()
    link = Pool(lambda pool: LineClient(between, pool))
    app = Pool(lambda pool: H1Client(behind, pool))
    far = ListWire()
    server = LineServer(far, ToPool(app))
    wires = [ListWire() for _ in range(3)]
    fronts = [H1Server(wire, ToPool(link), Clock()) for wire in wires]
    request = b"POST /%d HTTP/1.1\r\nHost: svc\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-t: v\r\n\r\n"
    for number, front in enumerate(fronts):
        front.feed(request % number)
    client = next(iter(link._all))
    assert isinstance(client, LineClient) and len(client.streams) == 3
    first, *others = between.take().split(b'{"id": 2')
    server.feed(first)
    assert (
        behind.take()
        == b"POST /0 HTTP/1.1\r\nhost: svc\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-t: v\r\n\r\n"
    )
    origin = next(iter(app._all))
    assert isinstance(origin, H1Client) and others
    origin.feed(
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\nx-u: w\r\n\r\n"
    )
    client.feed(far.take())
    assert undated(wires[0].take()) == (
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\nx-u: w\r\n\r\n"
    )
    assert not wires[1].take() and len(client.streams) == 2


def test_a_stream_that_comes_too_late_is_reset() -> None:
    stage = FakeStage()
    end = H1ServerEnd(stage)
    end.request(False)
    end.give_up()
    late = FakeClient()
    stage.exchanges[0].attach(late)
    assert late.reset_by == [Reason.CANCELLED] and late.head is None
