"""HTTP/2 on list wires with the `h2` library as the independent peer. All input comes whole, byte by byte and cut at
random.
"""

from __future__ import annotations

import random
import re
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import hpack
import pytest

from proxy.balance.p2c import P2c
from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http.h1.client import H1Client
from proxy.http.h1.server import H1Server
from proxy.http.h2.client import H2Client
from proxy.http.h2.frames import frame
from proxy.http.h2.hpack.decoder import Decoder
from proxy.http.h2.hpack.encoder import Encoder
from proxy.http.h2.server import H2Server
from proxy.http.pool import Pool
from tests.http.h2.kit import frames
from tests.kit import Clock, ListWire, splits
from tests.kit.stage import Concrete, Endpoint


class Proxy:
    """One server codec, and the client codecs that its exchanges open."""

    def __init__(self, server: Any, client: Any) -> None:
        self.clock = Clock()
        self.wheel = Wheel(0.1, self.clock.now)
        self.client_type = client
        self.wires: list[ListWire] = []
        self.clients: list[Any] = []
        self.endpoint = Endpoint(Pool(self.dial), self.clock)
        self.wire = ListWire()
        self.server = server(self.wire, Concrete(P2c([self.endpoint]), self.wheel, 1.0, None), self.clock)

    def dial(self, pool: Pool) -> Any:
        wire = ListWire()
        client = self.client_type(wire, pool)
        self.wires.append(wire)
        self.clients.append(client)
        return client


def peer(is_client: bool, **settings: int) -> h2.connection.H2Connection:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=is_client, header_encoding=None))
    if settings:
        connection.local_settings = h2.settings.Settings(
            client=is_client, initial_values={h2.settings.SettingCodes[k]: v for k, v in settings.items()}
        )
    connection.initiate_connection()
    return connection


def feed(codec: Any, data: bytes, index: int) -> None:
    for part in list(splits(data))[index] if index else [data]:
        codec.feed(part)


def undated(data: bytes) -> bytes:
    """HTTP/1 bytes without the date that the proxy added."""
    return re.sub(rb"date: [^\r]*\r\n", b"", data, flags=re.IGNORECASE)


def body_of(events: list[Any]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, h2.events.DataReceived))


GET = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"svc"), (b":path", b"/x"), (b"x-a", b"1")]
POST = [(b":method", b"POST"), *GET[1:]]
MODES = (0, 1, 2, 7, 13)


@pytest.mark.parametrize("index", MODES)
def test_h2_to_h1_with_bodies_and_trailers_both_ways(index: int) -> None:
    proxy, client = Proxy(H2Server, H1Client), peer(True)
    for number in (1, 3, 5):
        client.send_headers(number, [*POST, (b"te", b"trailers")])
        client.send_data(number, b"hello ")
        client.send_data(number, b"world")
        client.send_headers(number, [(b"x-sum", b"11")], end_stream=True)
        feed(proxy.server, client.data_to_send(), index)
        sent = proxy.wires[0].take()
        assert sent.startswith(b"POST /x HTTP/1.1\r\nHost: svc\r\nx-a: 1\r\n")
        assert sent.endswith(b"6\r\nhello \r\n5\r\nworld\r\n0\r\nx-sum: 11\r\n\r\n")
        answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\ngrpc-status: 0\r\n\r\n"
        feed(proxy.clients[0], answer, index)
        events = client.receive_data(proxy.wire.take())
        assert body_of(events) == b"abc"
        trailers = [event for event in events if isinstance(event, h2.events.TrailersReceived)]
        assert [tuple(field) for field in trailers[0].headers] == [(b"grpc-status", b"0")]
    assert len(proxy.clients) == 1
    assert proxy.endpoint.scope.responses == {200: 3}


@pytest.mark.parametrize("index", MODES)
def test_h1_to_h2_with_bodies_and_trailers_both_ways(index: int) -> None:
    proxy, server = Proxy(H1Server, H2Client), peer(False)
    for number in (1, 3, 5):
        request = (
            b"POST /x HTTP/1.1\r\nHost: svc\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"6\r\nhello \r\n5\r\nworld\r\n0\r\nx-sum: 11\r\n\r\n"
        )
        feed(proxy.server, request, index)
        events = server.receive_data(proxy.wires[0].take())
        assert body_of(events) == b"hello world"
        assert any(isinstance(event, h2.events.TrailersReceived) for event in events)
        server.send_headers(number, [(b":status", b"200"), (b"x-b", b"2")])
        server.send_data(number, b"abc")
        server.send_headers(number, [(b"grpc-status", b"0")], end_stream=True)
        feed(proxy.clients[0], server.data_to_send(), index)
        assert undated(proxy.wire.take()) == (
            b"HTTP/1.1 200 OK\r\nx-b: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\ngrpc-status: 0\r\n\r\n"
        )


def test_empty_h2_response_gets_a_length_for_h1() -> None:
    proxy, server = Proxy(H1Server, H2Client), peer(False)
    proxy.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    server.receive_data(proxy.wires[0].take())
    server.send_headers(1, [(b":status", b"200")], end_stream=True)
    proxy.clients[0].feed(server.data_to_send())
    assert undated(proxy.wire.take()) == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def test_send_window_holds_the_endpoint_back() -> None:
    proxy, client = Proxy(H2Server, H1Client), peer(True)
    client.send_headers(1, GET, end_stream=True)
    proxy.server.feed(client.data_to_send())
    size = 1_000_000
    proxy.clients[0].feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
    sent, got = 0, b""
    while sent < size or len(got) < size:
        if not proxy.wires[0].is_paused and sent < size:
            proxy.clients[0].feed(b"z" * 50_000)
            sent += 50_000
        assert sent - len(got) <= 65535 + 50_000, "the proxy buffers more than one read beyond the window"
        events = client.receive_data(proxy.wire.take())
        got += body_of(events)
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                client.acknowledge_received_data(event.flow_controlled_length, 1)
        proxy.server.feed(client.data_to_send())
    assert len(got) == size and proxy.endpoint.scope.responses == {200: 1}


def test_a_connection_is_not_left_paused_by_the_last_bytes_of_a_response() -> None:
    proxy, client = Proxy(H2Server, H1Client), peer(True)
    client.send_headers(1, GET, end_stream=True)
    proxy.server.feed(client.data_to_send())
    proxy.clients[0].feed(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"z" * 100_000)
    assert not proxy.wires[0].is_paused and len(proxy.endpoint.pool.ready) == 1


def test_credit_follows_the_writer() -> None:
    proxy, client = Proxy(H2Server, H1Client), peer(True)
    client.receive_data(proxy.wire.take())
    client.send_headers(1, POST)
    proxy.server.feed(client.data_to_send())
    proxy.clients[0].writable(False)
    sent = 0
    while client.local_flow_control_window(1) > 0:
        count = min(16384, client.local_flow_control_window(1))
        client.send_data(1, b"z" * count)
        sent += count
        proxy.server.feed(client.data_to_send())
        client.receive_data(proxy.wire.take())
    assert sent == limits.STREAM_WINDOW_BYTES, "credit was given while the endpoint took nothing"
    proxy.clients[0].writable(True)
    client.receive_data(proxy.wire.take())
    assert client.local_flow_control_window(1) == limits.STREAM_WINDOW_BYTES
    client.send_data(1, b"", end_stream=True)
    proxy.server.feed(client.data_to_send())
    assert proxy.wires[0].take().endswith(b"0\r\n\r\n")


def test_peer_beyond_its_window_is_reset() -> None:
    proxy, client = Proxy(H2Server, H1Client), peer(True)
    client.send_headers(1, POST)
    proxy.server.feed(client.data_to_send())
    proxy.clients[0].writable(False)
    proxy.wire.take()
    piece = frame.header(16384, frame.DATA, 0, 1) + b"z" * 16384
    for _ in range(65):
        proxy.server.feed(piece)
    assert frame.rst_stream(1, 3) in proxy.wire.take()
    assert proxy.wires[0].aborted is Reason.FLOW_CONTROL


def test_credit_of_a_reset_stream_goes_back_to_the_connection() -> None:
    proxy, client = Proxy(H2Server, H1Client), peer(True)
    client.receive_data(proxy.wire.take())
    for number in range(1, 41, 2):
        client.send_headers(number, POST)
        proxy.server.feed(client.data_to_send())
        proxy.clients[-1].writable(False)
        for _ in range(4):
            client.send_data(number, b"z" * 16000)
        proxy.server.feed(client.data_to_send())
        client.reset_stream(number)
        proxy.server.feed(client.data_to_send())
        client.receive_data(proxy.wire.take())
        assert proxy.wires[-1].aborted is Reason.PEER_RESET
    assert client.outbound_flow_control_window > limits.CONNECTION_WINDOW_BYTES // 2


def test_resets_cross() -> None:
    proxy, server = Proxy(H1Server, H2Client), peer(False)
    proxy.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    server.receive_data(proxy.wires[0].take())
    server.reset_stream(1, 7)
    proxy.clients[0].feed(server.data_to_send())
    assert proxy.wire.take().startswith(b"HTTP/1.1 503 ")
    proxy.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    server.receive_data(proxy.wires[0].take())
    proxy.server.lost(Reason.PEER_CLOSED)
    events = server.receive_data(proxy.wires[0].take())
    assert [event.error_code for event in events if isinstance(event, h2.events.StreamReset)] == [8]


def test_goaway_sends_the_later_streams_elsewhere_and_is_not_used_again() -> None:
    proxy, server, next_server = Proxy(H2Server, H2Client), peer(False), peer(False)
    client = peer(True)
    for number in (1, 3):
        client.send_headers(number, GET, end_stream=True)
    proxy.server.feed(client.data_to_send())
    server.receive_data(proxy.wires[0].take())
    server.send_headers(1, [(b":status", b"200")], end_stream=True)
    server.close_connection(last_stream_id=1)
    proxy.clients[0].feed(server.data_to_send())
    assert proxy.wires[0].has_ended
    next_server.receive_data(proxy.wires[1].take())
    next_server.send_headers(1, [(b":status", b"204")], end_stream=True)
    proxy.clients[1].feed(next_server.data_to_send())
    events = client.receive_data(proxy.wire.take())
    heads = {
        event.stream_id: dict(event.headers)[b":status"]
        for event in events
        if isinstance(event, h2.events.ResponseReceived)
    }
    assert heads == {1: b"200", 3: b"204"}
    client.send_headers(5, GET, end_stream=True)
    proxy.server.feed(client.data_to_send())
    assert len(proxy.clients) == 2


def test_early_response_ends_the_request_with_no_error() -> None:
    proxy, client = Proxy(H2Server, H1Client), peer(True)
    client.send_headers(1, POST)
    proxy.server.feed(client.data_to_send())
    proxy.clients[0].feed(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
    events = client.receive_data(proxy.wire.take())
    assert [event.error_code for event in events if isinstance(event, h2.events.StreamReset)] == [0]
    assert proxy.wires[0].aborted is Reason.EARLY_RESPONSE


BAD_REQUESTS: list[list[tuple[bytes, bytes]]] = [
    GET[1:],
    [*GET, (b":path", b"/y")],
    [*GET, (b":method", b"GET")],
    [*GET, (b"X-Upper", b"1")],
    [*GET, (b"x", b"a\r\nb")],
    [*GET, (b"x", b"a\x00")],
    [*GET, (b"x", b" a")],
    [*GET, (b"connection", b"close")],
    [*GET, (b"transfer-encoding", b"chunked")],
    [*GET, (b"te", b"gzip")],
    [*GET, (b"content-length", b"1"), (b"content-length", b"1")],
    [*GET, (b"content-length", b"7")],
    [*GET[:3], (b":path", b"/ HTTP/1.1")],
    [*GET, (b"x", b"y" * 66000)],
]


@pytest.mark.parametrize("use_huffman", [True, False])
@pytest.mark.parametrize("fields", BAD_REQUESTS, ids=range(len(BAD_REQUESTS)))
def test_malformed_requests_reset_only_their_stream(fields: list[tuple[bytes, bytes]], use_huffman: bool) -> None:
    proxy = Proxy(H2Server, H1Client)
    encoder = hpack.Encoder()
    proxy.server.feed(frame.PREFACE + frame.settings([]))
    proxy.wire.take()
    proxy.server.feed(frame.header_frames(1, encoder.encode(fields, huffman=use_huffman), True))
    answer = proxy.wire.take()
    is_too_long = len(fields[-1][1]) > 65536
    assert b"431" in answer if is_too_long else answer == frame.rst_stream(1, 1), answer
    assert not proxy.wires
    proxy.server.feed(frame.header_frames(3, encoder.encode(GET, huffman=use_huffman), True))
    assert proxy.wires[0].take().startswith(b"GET /x ")


def test_data_beyond_content_length_reaches_nobody() -> None:
    proxy, client = Proxy(H2Server, H1Client), peer(True)
    client.send_headers(1, [*POST, (b"content-length", b"5")])
    client.send_data(1, b"helloGET /smuggled HTTP/1.1\r\n\r\n")
    proxy.server.feed(client.data_to_send())
    assert b"smuggled" not in proxy.wires[0].take()
    assert proxy.wires[0].aborted is Reason.PROTOCOL_ERROR


def test_connection_faults_end_the_connection() -> None:
    for bad in (
        frame.header(5, frame.DATA, 0, 0) + b"hello",
        frame.header(20000, frame.DATA, 0, 1),
        frame.header(1, frame.SETTINGS, 0, 0) + b"x",
        frame.header(4, frame.WINDOW_UPDATE, 0, 0) + bytes(4),
        frame.header(1, frame.HEADERS, 5, 1) + b"\x80",
        frame.header(2, frame.HEADERS, 5, 1) + b"\xff\xff",
        frame.header(1, frame.CONTINUATION, 4, 1) + b"x",
        frame.header(4, frame.RST_STREAM, 0, 9) + bytes(4),
        frame.header(5, frame.HEADERS, 5, 1) + b"\x00\x82\xff\xff\x00",
    ):
        proxy = Proxy(H2Server, H1Client)
        proxy.server.feed(frame.PREFACE + frame.settings([]) + bad)
        assert proxy.wire.aborted is not None, bad
        assert frame.header(8, frame.GOAWAY, 0, 0) in proxy.wire.take()


def test_a_fault_of_ours_ends_one_stream_only(caplog: pytest.LogCaptureFixture) -> None:
    proxy, client = Proxy(H2Server, H1Client), peer(True)
    stage, proxy.server._stage = proxy.server._stage, type("Broken", (), {"dispatch": lambda self, exchange: 1 / 0})()
    client.send_headers(1, GET, end_stream=True)
    proxy.server.feed(client.data_to_send())
    events = client.receive_data(proxy.wire.take())
    heads = [event for event in events if isinstance(event, h2.events.ResponseReceived)]
    assert [dict(event.headers)[b":status"] for event in heads] == [b"500"]
    assert "ZeroDivisionError" in caplog.text
    proxy.server._stage = stage
    client.send_headers(3, GET, end_stream=True)
    proxy.server.feed(client.data_to_send())
    assert proxy.wires[0].take().startswith(b"GET /x ")


def test_hpack_agrees_with_the_hpack_library() -> None:
    dice = random.Random(3)
    names = [b":path", b"x-%d", b"cookie", b"user-agent", b"accept-encoding", b"authorization"]
    their_encoder, their_decoder = hpack.Encoder(), hpack.Decoder()
    our_encoder, our_decoder = Encoder(), Decoder()
    relay = Decoder()
    for turn in range(3000):
        fields = []
        for _ in range(dice.randrange(1, 14)):
            name = dice.choice(names).replace(b"%d", b"%d" % dice.randrange(30))
            value = (
                bytes(dice.randrange(33, 127) for _ in range(dice.choice((0, 1, 5, 30, 200))))
                if dice.random() < 0.3
                else b"v%d" % dice.randrange(40)
            )
            fields.append((name, value))
        if turn == 1500:
            their_encoder.header_table_size = 256
        block = their_encoder.encode(fields, huffman=dice.random() < 0.7)
        ours = our_decoder.decode(block)
        assert [(one.name, one.value) for one in ours] == fields
        again = our_encoder.encode(tuple(ours))
        assert [(bytes(n), bytes(v)) for n, v in their_decoder.decode(again, raw=True)] == fields
        assert [(one.name, one.value) for one in relay.decode(again)] == fields


# ---- HTTP/2 on both sides


@pytest.mark.parametrize("index", MODES)
def test_h2_to_h2_whole_and_in_pieces(index: int) -> None:
    proxy, client, server = Proxy(H2Server, H2Client), peer(True), peer(False)
    for number in (1, 3, 5):
        client.send_headers(number, [*POST, (b"te", b"trailers"), (b"cookie", b"a=1"), (b"cookie", b"b=2")])
        client.send_data(number, b"hello ")
        client.send_data(number, b"world")
        client.send_headers(number, [(b"x-sum", b"11")], end_stream=True)
        feed(proxy.server, client.data_to_send(), index)
        events = server.receive_data(proxy.wires[0].take())
        request = next(event for event in events if isinstance(event, h2.events.RequestReceived))
        fields = [tuple(one) for one in request.headers]
        assert fields[:5] == [*POST] and (b"te", b"trailers") in fields
        assert (b"cookie", b"a=1; b=2") in fields, "the crumbs, which h2 joins for its user"
        assert body_of(events) == b"hello world"
        assert any(isinstance(event, h2.events.TrailersReceived) for event in events)
        server.send_headers(number, [(b":status", b"103"), (b"link", b"</a>")])
        server.send_headers(number, [(b":status", b"200"), (b"x-b", b"2")])
        server.send_data(number, b"abc")
        server.send_headers(number, [(b"grpc-status", b"0")], end_stream=True)
        feed(proxy.clients[0], server.data_to_send(), index)
        told = client.receive_data(proxy.wire.take())
        kinds = [type(event) for event in told if "Window" not in type(event).__name__]
        order = (
            h2.events.InformationalResponseReceived,
            h2.events.ResponseReceived,
            h2.events.DataReceived,
            h2.events.TrailersReceived,
            h2.events.StreamEnded,
        )
        assert tuple(kind for kind in kinds if kind in order) == order
        assert body_of(told) == b"abc"
    assert len(proxy.clients) == 1 and not proxy.server.streams and not proxy.clients[0].streams


def test_a_request_without_authority_arrives_without_one() -> None:
    proxy = Proxy(H2Server, H2Client)
    block = hpack.Encoder().encode([(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")])
    proxy.server.feed(frame.PREFACE + frame.settings([]) + frame.header_frames(1, block, True))
    got = frames(proxy.wires[0].take().removeprefix(frame.PREFACE))
    sent: Any = hpack.Decoder().decode(next(one.payload for one in got if one.kind == frame.HEADERS))
    assert ":authority" not in [name for name, _ in sent]
    proxy.clients[0].feed(frame.settings([]) + frame.header_frames(1, b"\x88", True))
    answer = [one.payload for one in frames(proxy.wire.take()) if one.kind == frame.HEADERS]
    assert answer[0][:1] == b"\x88"


def test_many_streams_share_a_link_of_small_windows() -> None:
    """200 uploads of 10 kB to a server that grants window only when all of it is used up: each gets its share and
    ends.
    """
    proxy, client = Proxy(H2Server, H2Client), peer(True)
    server = peer(False, INITIAL_WINDOW_SIZE=1000)
    client.receive_data(proxy.wire.take())
    waiting: dict[int, bytes] = {}
    received: dict[int, int] = {}
    ended: set[int] = set()
    client.send_headers(1, GET, end_stream=True)
    proxy.server.feed(client.data_to_send())
    server.receive_data(proxy.wires[0].take())
    proxy.clients[0].feed(server.data_to_send())
    for number in range(3, 403, 2):
        client.send_headers(number, POST)
        waiting[number] = bytes(10_000)
    owed: list[tuple[int, int]] = []
    for _ in range(2000):
        for number in list(waiting):
            room = min(client.local_flow_control_window(number), len(waiting[number]), 16384)
            if room > 0:
                client.send_data(number, waiting[number][:room], end_stream=room == len(waiting[number]))
                waiting[number] = waiting[number][room:]
            if not waiting[number]:
                del waiting[number]
        proxy.server.feed(client.data_to_send())
        for event in server.receive_data(proxy.wires[0].take()):
            if isinstance(event, h2.events.DataReceived):
                received[event.stream_id] = received.get(event.stream_id, 0) + len(event.data)
                owed.append((event.flow_controlled_length, event.stream_id))
            elif isinstance(event, h2.events.StreamEnded):
                ended.add(event.stream_id)
        for size, number in owed:
            if size:
                server.increment_flow_control_window(size)
                if number not in ended:
                    server.increment_flow_control_window(size, number)
        owed.clear()
        proxy.clients[0].feed(server.data_to_send())
        client.receive_data(proxy.wire.take())
        if len(ended) == 200:
            break
    assert len(ended) == 200 and set(received.values()) == {10_000}
