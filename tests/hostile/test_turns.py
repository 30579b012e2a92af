"""Whatever one peer sends, no turn of the loop is long, and other peers are served: hostile clients, hostile endpoints.

Each test runs through real proxies on real sockets (tests/kit/topology.py). It judges the longest turn by the loop
thread's own time, which other work on the machine does not lengthen, and that the polite client is answered
throughout.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from threading import Thread

import hpack
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.http.h2.frames import frame
from proxy.http.headers import integer
from tests.hostile.floods import ENHANCE_YOUR_CALM, Flooder, Polite, settings_by_one, windows_by_one
from tests.hostile.stopwatch import Stopwatch
from tests.kit import app as kit_app
from tests.kit.frames import INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, Http2, Serving, Stream, request
from tests.kit.topology import IN, OUT, PAIR, Topology, until
from tests.kit.wire import Ended, Peer

LONGEST_MS = 100.0
"""The limit for hostile input, for interpreted code on a slow machine too."""


WELL_FORMED_MS = {OUT: 10.0, IN: 10.0, PAIR: 20.0}
"""The limits for well-formed traffic, for interpreted code too. Both proxies of a pair are on one loop here, so their
turns add up.
"""
_TRIES = 3
"""How often a test is tried: a fault of ours would be slow each time, while a busy machine's caches are cold now and
then.
"""


@pytest.fixture(scope="module")
def topology() -> Iterator[Topology]:
    with Topology() as made:
        yield made


class App:
    """Speaks HTTP/1 or HTTP/2, as its client begins; `hostile` serves connections on which `/hostile` is requested."""

    def __init__(self, hostile: Callable[[socket.socket, bytes], None] | None = None, answer: int = 10) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._hostile = hostile
        self._answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % answer + bytes(answer)
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, Ended, TimeoutError), sock:
            data = b""
            while more := sock.recv(65536):
                data += more
                if self._hostile is not None and (data.startswith(b"PRI ") or b"/hostile" in data):
                    self._hostile(sock, data)
                    return
                while b"\r\n\r\n" in data:
                    data = data.partition(b"\r\n\r\n")[2]
                    sock.sendall(self._answer)

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


@contextlib.contextmanager
def watched(topology: Topology, where: Addr, longest_ms: float = LONGEST_MS) -> Iterator[Polite]:
    """A polite client, and a limit for all turns of the loop meanwhile."""
    peer = Peer.connect(where)

    def ask() -> None:
        peer.send(b"GET /polite HTTP/1.1\r\nhost: app.ns\r\n\r\n")
        assert peer.response().status == 200

    watch = topology.call(lambda: Stopwatch(topology._loop))
    with peer, Polite(ask) as polite:
        until(lambda: polite.took, "the polite client is served")
        gc.collect()
        gc.disable()  # a collection of the whole test process is no turn of the proxy's
        topology.call(watch.start)
        try:
            yield polite
            count = len(polite.took)
            until(lambda: len(polite.took) > count + 1, "the polite client is served still")
        finally:
            topology.call(watch.stop)
            gc.enable()
    assert watch.longest_ms < longest_ms, f"{watch.longest_ms:.0f} ms"


def connected(where: Addr) -> socket.socket:
    return socket.create_connection(where, timeout=30)


# ---- clients


def in_http_2(where: Addr, pieces: Callable[[hpack.Encoder], Iterator[bytes]]) -> None:
    flooder = Flooder(connected(where))
    flooder.send(pieces(hpack.Encoder()))
    flooder.sock.close()


START = b"\x82\x86\x84\x41\x01a"
"""The pseudo-headers of a GET."""


@cache
def huffman(text: bytes) -> bytes:
    """The text as an HPACK string literal."""
    octets = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text)
    return integer(len(octets), 7, 128) + octets


def requests(encoder: hpack.Encoder) -> Iterator[bytes]:
    fields = [(":method", "GET"), (":scheme", "http"), (":authority", "app.ns"), (":path", "/")]
    yield b"".join(frame.header_frames(2 * n + 1, encoder.encode(fields), True) for n in range(400))


def refused(encoder: hpack.Encoder) -> Iterator[bytes]:
    """Heads that break the rules: each is decoded, judged and reset."""
    fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("Bad Name", "x")]
    yield b"".join(frame.header_frames(2 * n + 1, encoder.encode(fields), True) for n in range(5000))


def new_fields(encoder: hpack.Encoder) -> Iterator[bytes]:
    """A block of 250 kB with nothing but new fields."""
    yield frame.header_frames(1, START + b"".join(b"\x40\x01x\x06%06d" % number for number in range(25_000)), True)


@cache
def many_fields(index: bytes, numbers: range) -> bytes:
    return b"".join(index + huffman(b"%040d" % number) for number in numbers)


def long_blocks(encoder: hpack.Encoder) -> Iterator[bytes]:
    """Blocks with as many new fields as a block may have, or as long as it may be, in Huffman code: each is decoded
    whole and answered with 431.
    """
    count = limits.HEADER_BLOCK_FIELDS - 4
    for turn in range(2):
        fields = many_fields(b"\x50", range(turn * count, turn * count + count))
        yield frame.header_frames(4 * turn + 1, START + fields, True)
        yield frame.header_frames(4 * turn + 3, START + b"\x50" + huffman(b"~;<>^" * 15_000), True)


def full_heads(encoder: hpack.Encoder) -> Iterator[bytes]:
    """Good requests, each with as many fields as it may have: new ones, or those of the static table."""
    numbers = itertools.count()
    count = limits.HEAD_FIELDS - 4
    for stream in range(1, 201, 4):
        fields = b"".join(b"\x00\x01x\x06%06d" % next(numbers) for _ in range(count))
        yield frame.header_frames(stream, START + fields, True) + frame.header_frames(
            stream + 2, START + b"\x90" * count, True
        )


def pings(encoder: hpack.Encoder) -> Iterator[bytes]:
    yield (frame.header(8, frame.PING, 0, 0) + bytes(8)) * 20_000


def tiny_data(encoder: hpack.Encoder) -> Iterator[bytes]:
    fields = [(":method", "POST"), (":scheme", "http"), (":authority", "app.ns"), (":path", "/")]
    yield frame.header_frames(1, encoder.encode(fields), False)
    yield (frame.header(1, frame.DATA, 0, 1) + b"x") * 60_000


def pipelined(where: Addr) -> None:
    """Requests that a stage answers at once: their target is not allowed for any method."""
    with connected(where) as sock, contextlib.suppress(OSError):
        sock.sendall(b"GET * HTTP/1.1\r\nhost: app.ns\r\n\r\n" * 8000)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 18):
            pass


def pipelined_heads(where: Addr) -> None:
    numbers = itertools.count()
    with connected(where) as sock, contextlib.suppress(OSError):
        for _ in range(200):
            lines = b"".join(b"x: %d\r\n" % next(numbers) for _ in range(limits.HEAD_FIELDS - 1))
            sock.sendall(b"GET * HTTP/1.1\r\nhost: app.ns\r\n%b\r\n" % lines)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 18):
            pass


def chunks(where: Addr) -> None:
    with connected(where) as sock, contextlib.suppress(OSError):
        sock.sendall(b"POST / HTTP/1.1\r\nhost: app.ns\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 80_000)
        sock.sendall(b"0\r\n\r\n")
        sock.recv(1 << 16)


def half_open(where: Addr) -> None:
    """Handshakes: 200 ClientHellos at once, continued as far as the proxy lets them."""
    socks = [connected(where) for _ in range(200)]
    for sock in socks:
        sock.sendall(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03")
    for sock in socks:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()


WINDOWS: dict[str, Callable[[], Iterator[bytes]]] = {
    "SETTINGS": lambda: settings_by_one(2000),
    "WINDOW_UPDATE": lambda: windows_by_one(10_000, 300),
}

CLIENTS: dict[str, Callable[[Addr], None]] = {
    "requests in one write": lambda where: in_http_2(where, requests),
    "requests that break the form": lambda where: in_http_2(where, refused),
    "a header block of new fields": lambda where: in_http_2(where, new_fields),
    "header blocks as long as may be": lambda where: in_http_2(where, long_blocks),
    "heads of many fields": lambda where: in_http_2(where, full_heads),
    "PING": lambda where: in_http_2(where, pings),
    "DATA of one octet": lambda where: in_http_2(where, tiny_data),
    "pipelined requests": pipelined,
    "pipelined heads of many fields": pipelined_heads,
    "chunks of one octet": chunks,
    "hellos": half_open,
}


@pytest.mark.parametrize("way", [OUT, IN, PAIR])
@pytest.mark.parametrize("name", WINDOWS)
def test_clients_that_open_windows_by_one(topology: Topology, name: str, way: str) -> None:
    """Clients that open windows by one octet for the answers of an app that speaks HTTP/2; a second app serves the
    polite client.
    """
    answering = Serving(lambda connection, stream: connection.answer(stream, bytes(150)))
    with (
        kit_app.App(answering) as app,
        App() as other,
        topology.way(way, app.port) as where,
        topology.way(way, other.port) as elsewhere,
        watched(topology, elsewhere),
    ):
        flooder = Flooder(connected(where))
        flooder.open(300, "/")
        flooder.send(WINDOWS[name]())
        assert flooder.wait_for_end() == ENHANCE_YOUR_CALM


@pytest.mark.parametrize("way", [OUT, IN, PAIR])
@pytest.mark.parametrize("name", CLIENTS)
def test_hostile_clients(topology: Topology, name: str, way: str) -> None:
    with App() as app, topology.way(way, app.port) as where, watched(topology, where):
        CLIENTS[name](where)


@pytest.mark.parametrize("way", [OUT, IN])
def test_many_connections_that_are_ready_in_one_wake_up(topology: Topology, way: str) -> None:
    """Each takes its share of a turn, and their shares add up: the turn ends when all together have had enough
    (core/loop/turn.py).
    """
    with App() as app, topology.way(way, app.port) as where, contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(where)) for _ in range(300)]
        with watched(topology, where):
            may_go_on = threading.Event()
            holding = threading.Thread(target=topology.call, args=(may_go_on.wait,))
            holding.start()  # the loop stands still, which costs no CPU, while all of this arrives
            for sock in socks:
                sock.sendall(b"GET * HTTP/1.1\r\nhost: app.ns\r\n\r\n" * limits.TURN_HEADS)
            may_go_on.set()
            holding.join(30)
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(1 << 18):
                        pass


# ---- endpoints


def first_only(script: Callable[[Peer], None]) -> Callable[[Peer], None]:
    """Only the first connection is hostile. Requests that were not under way when it ended come again over another
    one, which is closed.
    """
    begun: list[Peer] = []

    def play(peer: Peer) -> None:
        begun.append(peer)
        if len(begun) == 1:
            script(peer)

    return play


def by_settings(peer: Peer) -> None:
    """An endpoint that moves its windows by SETTINGS while our request bodies wait for them: row B1 from the other
    side.
    """
    app = Http2(peer, False, settings={INITIAL_WINDOW_SIZE: 0, MAX_CONCURRENT_STREAMS: 1000})
    app.wait(lambda: len(app.streams) >= 50)
    with contextlib.suppress(OSError):
        for piece in settings_by_one(2000):
            peer.send(piece)
    app.end()


def by_blocks(peer: Peer) -> None:
    """Informational responses with as many new fields as a head may have, then heads over the limit."""
    app = Http2(peer, False, settings={MAX_CONCURRENT_STREAMS: 1000})
    app.wait(lambda: len(app.streams) >= 4)
    numbers = itertools.count()
    count = limits.HEADER_BLOCK_FIELDS - 1
    with contextlib.suppress(OSError):
        for stream in range(1, 9, 2):
            for _ in range(20):
                fields = b"".join(b"\x00\x01x\x06%06d" % next(numbers) for _ in range(limits.HEAD_FIELDS - 1))
                peer.send(frame.header_frames(stream, b"\x08\x03103" + fields, False))
        for stream in range(1, 9, 2):
            fields = many_fields(b"\x50", range((stream & 2) * count, (stream & 2) * count + count))
            peer.send(frame.header_frames(stream, b"\x88" + fields, True))
    app.end()


def informational(sock: socket.socket, data: bytes) -> None:
    sock.sendall(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 10_000)
    sock.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def answer_in_chunks(sock: socket.socket, data: bytes) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 80_000 + b"0\r\n\r\n")


ENDPOINTS: dict[str, tuple[Callable[[socket.socket, bytes], None], int]] = {
    "informational responses": (informational, 502),
    "chunks of one octet": (answer_in_chunks, 200),
}
"""What the endpoint does, and the status that its client gets: more informational responses than one request may have
are a failure of the endpoint.
"""


@pytest.mark.parametrize("way", [OUT, IN, PAIR])
@pytest.mark.parametrize("name", ENDPOINTS)
def test_hostile_endpoints(topology: Topology, name: str, way: str) -> None:
    script, status = ENDPOINTS[name]
    with (
        App(script) as app,
        topology.way(way, app.port) as where,
        watched(topology, where),
        Peer.connect(where) as peer,
    ):
        peer.send(b"GET /hostile HTTP/1.1\r\nhost: app.ns\r\n\r\n")
        assert peer.response().status == status


@pytest.mark.parametrize("way", [OUT, IN])
def test_a_hostile_http_2_endpoint(topology: Topology, way: str) -> None:
    """300 requests with bodies that the endpoint's windows let out octet by octet; a second app serves the polite
    client.
    """
    with (
        kit_app.App(first_only(by_settings)) as app,
        App() as other,
        topology.way(way, app.port) as where,
        topology.way(way, other.port) as elsewhere,
        watched(topology, elsewhere),
    ):
        client = Http2(Peer.connect(where))
        streams: list[Stream] = [client.begin(request(b"/", method=b"POST"), end=False) for _ in range(300)]
        for stream in streams:
            client.data(stream.id, bytes(150))
        client.wait(lambda: all(stream.heads or stream.is_over for stream in streams))
        client.peer.close()
        assert topology.metric(way, "sponson_connection_faults_total", 'reason="control_flood"')


@pytest.mark.parametrize("way", [OUT, IN])
def test_an_http_2_endpoint_that_sends_long_header_blocks(topology: Topology, way: str) -> None:
    with (
        kit_app.App(first_only(by_blocks)) as app,
        App() as other,
        topology.way(way, app.port) as where,
        topology.way(way, other.port) as elsewhere,
        watched(topology, elsewhere),
    ):
        client = Http2(Peer.connect(where))
        streams = [client.begin(request(b"/")) for _ in range(4)]
        client.wait(lambda: all(stream.heads or stream.is_over for stream in streams))
        client.peer.close()


# ---- well-formed traffic


def many_connections(where: Addr) -> None:
    """16 connections that send requests at the same time, 20 times."""
    peers = [Peer.connect(where) for _ in range(16)]
    for number in range(20):
        for peer in peers:
            peer.send(b"GET /%d HTTP/1.1\r\nhost: app.ns\r\nx-request-id: %d\r\n\r\n" % (number, number))
        assert [peer.response().status for peer in peers] == [200] * 16
    for peer in peers:
        peer.close()


def all_over(streams: list[Stream]) -> bool:
    return all(stream.is_over for stream in streams)


def many_streams(where: Addr) -> None:
    """A hundred requests at the same time on one connection, five times."""
    client = Http2(Peer.connect(where))
    for _ in range(5):
        streams = [client.begin(request(b"/")) for _ in range(100)]
        client.wait(partial(all_over, streams))
    client.peer.close()


def long_bodies(where: Addr) -> None:
    """Four uploads of two megabytes at the same time."""
    peers = [Peer.connect(where) for _ in range(4)]
    for peer in peers:
        peer.send(b"POST / HTTP/1.1\r\nhost: app.ns\r\ncontent-length: 2097152\r\n\r\n")
    for _ in range(32):
        for peer in peers:
            peer.send(bytes(65536))
    assert [peer.response().status for peer in peers] == [200] * 4
    for peer in peers:
        peer.close()


def answering_app() -> kit_app.App:
    """An app that speaks HTTP/2."""
    return kit_app.App(Serving(lambda connection, stream: connection.answer(stream, bytes(150))))


WELL_FORMED: dict[str, tuple[Callable[[], App | kit_app.App], Callable[[Addr], None]]] = {
    "many connections": (App, many_connections),
    "many streams": (answering_app, many_streams),
    "long bodies": (App, long_bodies),
}


@pytest.mark.parametrize("way", [OUT, IN, PAIR])
@pytest.mark.parametrize("name", WELL_FORMED)
def test_well_formed_traffic(topology: Topology, name: str, way: str) -> None:
    make, drive = WELL_FORMED[name]
    with (
        make() as app,
        App() as other,
        topology.way(way, app.port) as where,
        topology.way(way, other.port) as elsewhere,
    ):
        for tries_left in reversed(range(_TRIES)):
            try:
                with watched(topology, elsewhere, WELL_FORMED_MS[way]):
                    drive(where)
                break
            except AssertionError:
                if not tries_left:
                    raise
