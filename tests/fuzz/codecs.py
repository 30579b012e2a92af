"""The four HTTP codecs: whatever the bytes and however they are cut, the other side gets the same calls, once, in order.

Each input is fed whole and in pieces; the calls and the output must be the same both times. When the connection is
gone, every exchange has ended, once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import hpack

from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http.h1.client import H1Client
from proxy.http.h1.server import H1Server
from proxy.http.h2.client import H2Client
from proxy.http.h2.frames import frame
from proxy.http.h2.server import H2Server
from proxy.http.head import RequestHead
from proxy.http.headers import field
from proxy.http.pool import Pool
from tests.fuzz.ends import Endpoints, Front, FuzzWire, has_ended_once
from tests.fuzz.mutate import Shape, reframed
from tests.fuzz.target import Target
from tests.kit import Clock, undated
from tests.kit.attempts import ToPoolAgain


class Outcome(NamedTuple):
    told: list[Any]
    written: bytes
    end: str
    is_comparable: bool
    """Whether the wire was never paused; a pause would have held the rest back."""


Play = Callable[[list[bytes]], Outcome]


def codec_target(
    name: str, play: Play, seeds: tuple[bytes, ...], tokens: tuple[bytes, ...], shape: Shape | None = None
) -> Target:
    def run(data: bytes) -> None:
        whole = play([data])
        parts = play(cut(data))
        if whole.is_comparable and parts.is_comparable:
            assert parts == whole, f"whole: {whole}, in pieces: {parts}"

    return Target(name, run, (), seeds, tokens, shape)


def cut(data: bytes) -> list[bytes]:
    """Cut at places that depend on the data alone; every fourth input is cut into single bytes."""
    dice = Random(zlib.crc32(data))
    if not dice.randrange(4):
        return [data[index : index + 1] for index in range(len(data))]
    cuts = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(dice.randrange(1, 9)))})
    return [data[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]


def feed(codec: Any, wire: FuzzWire, pieces: list[bytes]) -> bool:
    """True if all of it was read."""
    for piece in pieces:
        if wire.is_deaf:
            break
        codec.feed(piece)
    is_whole = not wire.is_paused
    if wire.aborted is None:
        codec.eof()
    codec.lost(Reason.PEER_CLOSED)
    return is_whole


# ---- HTTP/1


def play_h1_server(pieces: list[bytes]) -> Outcome:
    wire, stage, clock = FuzzWire(), Endpoints(), Clock()
    server = H1Server(wire, stage, clock, Wheel(0.1, clock.now))
    wire.codec = server
    is_whole = feed(server, wire, pieces)
    assert all(has_ended_once(one.observer) for one in stage.all)
    return Outcome([one.told() for one in stage.all], undated(wire.take()), wire.mark(), is_whole)


_H1_ASKED = (b"GET", b"HEAD", b"POST", b"CONNECT", b"UPGRADE")


def play_h1_client(pieces: list[bytes]) -> Outcome:
    """The first octet chooses the request that was sent."""
    wire = FuzzWire()
    pool = Pool(lambda pool: H1Client(wire, pool))
    data = b"".join(pieces)
    method = _H1_ASKED[(data[0] if data else 0) % len(_H1_ASKED)]
    front = Front(asked(method))
    ToPoolAgain(pool).send(front.exchange)
    client: Any = front.exchange.client
    wire.codec = client
    wire.take()
    is_whole = feed(client, wire, [pieces[0][1:], *pieces[1:]] if pieces else [])
    assert front.exchange.reason is not None and has_ended_once(front.observer)
    assert not len(pool), "a connection that is gone is in no pool"
    return Outcome([front.told()], wire.take(), wire.mark(), is_whole)


def asked(method: bytes) -> RequestHead:
    if method == b"UPGRADE":
        head = RequestHead(b"GET", b"http", b"a", b"/", [field(b"connection", b"upgrade"), field(b"upgrade", b"x")], 0)
        head.upgrade = b"x"
    else:
        head = RequestHead(method, b"http", b"a", b"/", [], 0)
    head.wants_tunnel = method in (b"CONNECT", b"UPGRADE")
    return head


# ---- HTTP/2


def play_h2_server(pieces: list[bytes]) -> Outcome:
    """The data follows the preface and the settings."""
    wire, stage, clock = FuzzWire(), Endpoints(), Clock()
    server = H2Server(wire, stage, clock, wheel=Wheel(0.1, clock.now))
    wire.codec = server
    server.feed(frame.PREFACE + frame.settings([]))
    is_whole = feed(server, wire, pieces)
    assert all(has_ended_once(one.observer) for one in stage.all)
    assert not server.streams
    return Outcome([one.told() for one in stage.all], normal(wire.take()), wire.mark(), is_whole)


def play_h2_client(pieces: list[bytes]) -> Outcome:
    """Three requests are under way: a GET, a POST whose body goes on, a HEAD."""
    clients: list[tuple[FuzzWire, H2Client]] = []
    wheel = Wheel(0.1, 100.0)

    def dial(pool: Pool) -> H2Client:
        wire = FuzzWire()
        client = H2Client(wire, pool, wheel=wheel)
        wire.codec = client
        clients.append((wire, client))
        return client

    pool = Pool(dial)
    fronts = [Front(RequestHead(method, b"http", b"a", b"/", [], size)) for method, size in _H2_ASKED]
    for front, (_, size) in zip(fronts, _H2_ASKED, strict=True):
        front.exchange.request_ended = not size
        ToPoolAgain(pool).send(front.exchange)
    ((wire, client),) = clients
    client.feed(frame.settings([]))
    is_whole = feed(client, wire, pieces)
    for _, another in clients[1:]:  # what a GOAWAY left out was tried again there
        another.lost(Reason.PEER_CLOSED)
    assert all(one.exchange.reason is not None and has_ended_once(one.observer) for one in fronts)
    assert not client.streams and not len(pool)
    written = [normal(one.take()) for one, _ in clients]
    return Outcome([one.told() for one in fronts], b"|".join(written), wire.mark(), is_whole)


_H2_ASKED = ((b"GET", 0), (b"POST", -1), (b"HEAD", 0))


def normal(data: bytes) -> bytes:
    """The output in a comparable form: WINDOW_UPDATE frames may come at any time, and heads contain the time of day."""
    found = []
    data = data.removeprefix(frame.PREFACE)
    while data:
        size = int.from_bytes(data[:3], "big")
        kind = data[3]
        if kind not in (frame.WINDOW_UPDATE, frame.HEADERS, frame.DATA):
            found.append(data[: 9 + size])
        data = data[9 + size :]
    return b"".join(sorted(found))


# ---- seeds


def frames(*parts: bytes) -> bytes:
    return b"".join(parts)


def raw(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return frame.header(len(payload), kind, flags, stream) + payload


def block(*fields: tuple[bytes, bytes]) -> bytes:
    """Encoded without the dynamic table, so that blocks stay valid when they are moved."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return bytes(encoder.encode(fields))


def head(
    stream: int, end: bool = True, *more: tuple[bytes, bytes], method: bytes = b"GET", path: bytes = b"/"
) -> bytes:
    pseudo = ((b":method", method), (b":scheme", b"http"), (b":authority", b"a"), (b":path", path))
    return raw(1, 4 | end, stream, block(*pseudo, *more))


def status(stream: int, code: bytes, end: bool, *more: tuple[bytes, bytes]) -> bytes:
    return raw(1, 4 | end, stream, block((b":status", code), *more))


H1_REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
    b"POST /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /2 HTTP/1.0\r\n\r\n",
    b"GET http://b:80/x?y HTTP/1.1\r\nHost: b:80\r\nConnection: close, x\r\nX: 1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nglued bytes",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nglued bytes",
    b"GET /reset HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\nCookie: b=2\r\nx-empty:\r\nx-sp:  \t v \t\r\n\r\n",
)  # fmt: skip
H1_RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n",
    b"HTTP/1.1 200 \r\n\r\nuntil the end",
    b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nglued bytes",
    b"HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
)
H1_TOKENS = (
    b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"Content-Length: 0\r\n", b"Content-Length: 5\r\n",
    b"Content-Length: 18446744073709551616\r\n", b"Content-Length: +1\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: chunked, chunked\r\n", b"Connection: close\r\n",
    b"Connection: keep-alive\r\n", b"Host: b\r\n", b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n", b"HTTP/1.0", b"HTTP/1.1",
    b"HTTP/2.0", b"GET ", b"HEAD ", b"CONNECT ", b"0\r\n\r\n", b"ffffffffffffffffff\r\n", b"1;a=\"b\r\n", b" folded\r\n",
    b"l5d-client-id: x\r\n", b"TE: trailers\r\n", b"/early", b"/reset", b"http://", b"*", b"\xff", b"%00", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)  # fmt: skip

H2_REQUESTS = (
    frames(head(1), head(3), raw(6, 0, 0, b"pingping")),
    frames(head(1, False, method=b"POST"), raw(0, 0, 1, b"abc"), raw(0, 1, 1, b"def")),
    frames(head(1, False, (b"content-length", b"3"), method=b"POST"), raw(0, 9, 1, b"\x02abc\0\0")),
    frames(head(1, False, method=b"POST"), raw(0, 0, 1, b"abc"), raw(1, 5, 1, block((b"x-t", b"1")))),
    frames(head(1, False, method=b"POST", path=b"/early"), raw(0, 1, 1, b"abc"), head(3)),
    frames(head(1, False, method=b"POST"), raw(3, 0, 1, b"\0\0\0\x08"), head(3)),
    frames(raw(1, 1, 1, block((b":method", b"GET"), (b":scheme", b"http"))), raw(9, 4, 1, block((b":path", b"/")))),
    frames(raw(1, 0x25, 1, b"\0\0\0\x03\x10" + block((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")))),
    frames(raw(2, 0, 3, b"\0\0\0\x01\x10"), raw(4, 0, 0, b"\0\x04\0\0\0\x05"), head(5), raw(8, 0, 5, b"\0\0\0\x09")),
    frames(raw(4, 1, 0), raw(8, 0, 0, b"\0\0\xff\xff"), raw(250, 7, 9, b"unknown"), head(1)),
    frames(raw(1, 4, 1, block((b":method", b"CONNECT"), (b":authority", b"a:1"))), raw(0, 0, 1, b"tunnel"), raw(0, 1, 1)),
    frames(head(1, True, (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"te", b"trailers"), (b"x", b"y" * 300))),
    frames(raw(7, 0, 0, b"\0\0\0\0\0\0\0\0bye"), head(1, path=b"/reset")),
)  # fmt: skip
H2_RESPONSES = (
    frames(status(1, b"200", False), raw(0, 1, 1, b"ok"), status(3, b"204", True), status(5, b"200", True)),
    frames(status(1, b"103", False), status(1, b"200", False, (b"content-length", b"2")), raw(0, 1, 1, b"ok")),
    frames(status(3, b"200", False), raw(0, 0, 3, b"abc"), raw(1, 5, 3, block((b"grpc-status", b"0")))),
    frames(
        status(3, b"413", True), raw(3, 0, 3, b"\0\0\0\0"), raw(3, 0, 1, b"\0\0\0\x07"), raw(3, 0, 5, b"\0\0\0\x0b")
    ),
    frames(raw(7, 0, 0, b"\0\0\0\x01\0\0\0\0"), status(1, b"200", True), raw(6, 0, 0, b"12345678")),
    frames(raw(4, 0, 0, b"\0\x03\0\0\0\x00\0\x05\0\0\x40\0"), raw(8, 0, 3, b"\0\0\x10\0"), status(5, b"200", False)),
)
H2_TOKENS = (
    frame.PREFACE, raw(4, 0, 0), raw(4, 1, 0), raw(6, 0, 0, b"12345678"), raw(0, 1, 1, b"x"), raw(0, 0, 3), raw(3, 0, 1, b"\0\0\0\x08"),
    raw(8, 0, 0, b"\x7f\xff\xff\xff"), raw(8, 0, 1, b"\x7f\xff\xff\xff"), raw(8, 0, 1, b"\0\0\0\0"), raw(9, 4, 1), raw(5, 4, 1, b"\0\0\0\x02"),
    raw(7, 0, 0, b"\0" * 8), raw(4, 0, 0, b"\0\x04\x7f\xff\xff\xff"), raw(4, 0, 0, b"\0\x01\0\0\0\0"), raw(1, 5, 1, block((b"x", b"1"))),
    head(7), head(2), b"\x20", b"\x3f\xe1\x1f", b"\x80", b"\xff\xff\xff\xff\x0f", b"\x40\x01x\x01y", b"\0\0\0\x01",
)  # fmt: skip

TARGETS = (
    codec_target("http1-server", play_h1_server, H1_REQUESTS, H1_TOKENS),
    codec_target(
        "http1-client",
        play_h1_client,
        tuple(bytes((kind,)) + one for one in H1_RESPONSES for kind in range(len(_H1_ASKED))),
        H1_TOKENS,
    ),
    codec_target("http2-server", play_h2_server, H2_REQUESTS, H2_TOKENS, reframed),
    codec_target("http2-client", play_h2_client, H2_RESPONSES, H2_TOKENS, reframed),
)
