"""Section 4 of the field log, first half: floods, limits and lifetimes of HTTP/2, in every way from client to app."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from time import sleep, thread_time

import pytest

from proxy.policy.endpoint import Http2Params
from tests.field.stage import Stage
from tests.kit.frames import (
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PING,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Http2,
    Serving,
    Stream,
    frame,
    request,
)  # fmt: skip
from tests.kit.http1 import get, ok
from tests.kit.topology import IN, OUT, PROXIED, Topology, until
from tests.kit.wire import DEADLINE_S, Ended, Peer


def polite(stage: Stage, is_over: Event, answered: list[int]) -> None:
    """Another client, which makes a hundred unary calls a second while the test runs."""
    client = Http2(stage.connect())
    while not is_over.is_set():
        answered.append(client.ask(request()).status)
        sleep(0.01)


def flood(stage: Stage, batches: list[bytes], fault: str) -> tuple[int, int] | None:
    """Send batch after batch, with a polite client beside it, until the proxy ends the connection for this fault.
    Returns the GOAWAY. How long the polite client may be kept waiting is measured by tests/hostile, as CPU time.
    """
    side = IN if stage.way == IN else OUT
    before = stage.topology.metric(side, "sponson_connection_faults_total", f'reason="{fault}"')
    is_over, answered = Event(), list[int]()
    beside = Thread(target=polite, args=(stage, is_over, answered), daemon=True)
    beside.start()
    until(lambda: answered, "the polite client is served")
    attacker = Http2(stage.connect())
    try:
        for batch in batches:
            attacker.peer.send(batch)
    except OSError:
        pass
    end = attacker.end()
    count = len(answered)
    until(lambda: len(answered) > count, "the polite client is served still")
    is_over.set()
    beside.join(DEADLINE_S)
    assert not beside.is_alive() and set(answered) == {200}, "the polite client noticed"
    attacker.peer.close()
    until(
        lambda: stage.topology.metric(side, "sponson_connection_faults_total", f'reason="{fault}"') == before + 1,
        "it is counted",
    )
    return end


# ---- row 50


def answers_cheaply(peer: Peer) -> None:
    """An app that an attack does not slow down: it answers every HEADERS frame without reading it."""
    peer.exactly(24)
    peer.send(frame(SETTINGS, 0, 0))
    while True:
        head = peer.exactly(9)
        kind, flags, number = struct.unpack(">BBI", head[3:])
        peer.exactly(int.from_bytes(head[:3], "big"))
        if kind == HEADERS:
            peer.send(frame(HEADERS, END_HEADERS | END_STREAM, number, b"\x88"))
        elif kind == SETTINGS and not flags:
            peer.send(frame(SETTINGS, 1, 0))


def pair_of(number: int, block: bytes) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, number, block) + frame(
        RST_STREAM, 0, number, struct.pack(">I", CANCEL)
    )


RAPID: dict[str, Callable[[int, bytes], bytes]] = {
    "headers-rst": pair_of,
    "window-0": lambda number, block: frame(HEADERS, END_HEADERS, number, block) + frame(WINDOW_UPDATE, 0, number, bytes(4)),
    "data-after-end": lambda number, block: frame(HEADERS, END_HEADERS | END_STREAM, number, block) + frame(DATA, 0, number, b"x"),
    "malformed": lambda number, block: frame(HEADERS, END_HEADERS | END_STREAM, number, block + b"\x00\x01A\x01x"),
    "window-overflow": lambda number, block: frame(HEADERS, END_HEADERS, number, block) + frame(WINDOW_UPDATE, 0, number, b"\x7f\xff\xff\xff"),
}  # fmt: skip


@pytest.mark.parametrize("case", RAPID, ids=lambda one: f"row50-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_streams_that_are_opened_only_to_be_ended(stage: Stage, case: str) -> None:
    """Row 50: streams that are opened only to be ended do not hurt a polite client that shares the proxies'
    connections. At most 6,000 pairs instead of 20,000, 200 in one write.
    """

    stage.play(answers_cheaply)
    block = bytes.fromhex("828684") + b"\x41\x06app.ns"
    batches = [b"".join(RAPID[case](2 * (200 * n + i) + 1, block) for i in range(200)) for n in range(30)]
    end = flood(stage, batches, "reset_flood")
    assert end is not None and end[1] == ENHANCE_YOUR_CALM


# ---- row 52

CONTINUED = {
    "16k": [frame(CONTINUATION, 0, 1, b"\0\1x" + b"\x7f\xd1\x7e" + bytes(16378))] * 1000,
    "empty": [frame(CONTINUATION, 0, 1) * 100] * 100,
    "one-byte": [frame(CONTINUATION, 0, 1, b"\x82") * 100] * 100,
}


@pytest.mark.parametrize("case", CONTINUED, ids=lambda one: f"row52-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_header_block_without_an_end(stage: Stage, case: str) -> None:
    """Row 52: a header block that does not end costs its client the connection. At most 1,000 frames of 16 kB, or
    10,000 empty ones.
    """
    stage.play(answers_cheaply)
    end = flood(stage, [frame(HEADERS, END_STREAM, 1, bytes.fromhex("828684")), *CONTINUED[case]], "header_flood")
    assert end is not None and end[1] == ENHANCE_YOUR_CALM
    assert len(stage.app.connections) <= 1


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_header_block_of_the_app_without_an_end(stage: Stage) -> None:
    """Row 52, from the app's side: a header block that does not end fails the app's requests, and nothing else."""

    def script(peer: Peer) -> None:
        app = Http2(peer, False)
        stream = app.next_request()
        if len(stage.app.connections) > 1:
            app.answer(stream)
            app.end()
        app.send(HEADERS, 0, stream.id, b"\x88")
        for _ in range(1000):
            app.send(CONTINUATION, 0, stream.id, b"")

    stage.play(script)
    client = Http2(stage.connect())
    got = client.ask(request())
    assert got.status == 502 or got.reset is not None
    again = Http2(stage.connect())
    assert again.ask(request()).body == b"ok"


# ---- row 53


@pytest.mark.parametrize("kind", ["indexed", "literal-names", "huffman"], ids=lambda one: f"row53-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_header_list_that_is_much_longer_decoded(stage: Stage, kind: str) -> None:
    """Row 53: 16 kB of references to an entry of 4 kB would be 64 MB. A list of few fields gets 431 or a reset, and
    the connection goes on; one of thousands of fields ends the connection, because even decoding it is work. Both
    kinds are sent together.
    """
    app = Serving()
    stage.play(app)
    client = Http2(stage.connect())
    start = bytes.fromhex("828684") + b"\x41\x06app.ns"
    entry = b"\x40\x01x" + b"\x7f" + integer(4000 - 127) + b"a" * 4000
    value = b"\x18\xc6\x31\x8c\x63" * 2400  # 19,200 times the letter a, in 5 bits each
    bomb = {
        "indexed": entry + b"\xbe" * 12000,
        "literal-names": entry + b"\x0f\x2f\x00" * 4000,
        "huffman": (b"\x00\x01y\xff" + integer(12000 - 127) + value) * 5,
    }[kind]
    began = stage.topology.call(thread_time)
    client.send(HEADERS, END_STREAM, 1, start)
    pieces = [bomb[i : i + 16384] for i in range(0, len(bomb), 16384)]
    for index, piece in enumerate(pieces):
        client.send(CONTINUATION, END_HEADERS if index == len(pieces) - 1 else 0, 1, piece)
    if kind != "huffman":
        end = client.end()
        assert stage.topology.call(thread_time) - began < 0.5
        assert end is not None and end[1] == ENHANCE_YOUR_CALM
        assert app.requests == [] and stage.connect()
        return
    got = client.finish(client.stream(1))
    assert stage.topology.call(thread_time) - began < 0.5
    assert got.status == 431 or got.reset is not None
    after = client.stream(3)
    client.send(HEADERS, END_HEADERS | END_STREAM, 3, bytes.fromhex("828684") + b"\x01\x06app.ns")
    assert client.finish(after).body == b"ok"
    assert len(app.requests) == 1


def integer(value: int) -> bytes:
    """The octets of an HPACK integer behind a full prefix."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# ---- row 58


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_every_stream_ends_exactly_once(stage: Stage) -> None:
    """Row 58: every stream ends exactly once. 1,500 calls instead of 200,000, 5 % of them cancelled at three points;
    then idle, then more calls.
    """

    def answer(connection: Http2, stream: Stream) -> None:
        if stream.get(b":path") != b"/never":
            connection.answer(stream, b"x" * 3000, trailers=[(b"grpc-status", b"0")])

    app = Serving(answer)
    stage.play(app)
    client = Http2(stage.connect())
    begun = []
    for turn in range(1500):
        if turn % 20:
            begun.append(client.begin(request()))
        else:
            stream = client.begin(request(b"/never" if turn % 40 else b"/"), end=turn % 3 != 0)
            if turn % 60:
                client.is_alive()
            client.rst(stream.id)
        if len(begun) >= 50:
            for one in begun:
                assert client.finish(one).trailers == [(b"grpc-status", b"0")] and len(one.body) == 3000
            begun.clear()
    for one in begun:
        client.finish(one)
    stage.topology.pass_time(60)
    assert client.is_alive() and client.ask(request()).trailers == [(b"grpc-status", b"0")]
    for connection in app.connections:
        streams = list(connection.streams.values())
        until(lambda streams=streams: all(one.is_over for one in streams), "the app heard of every end")  # type: ignore[misc]


# ---- row 59


@pytest.mark.parametrize("ending", ["close", "reset"], ids=lambda one: f"row59-{one}")
def test_when_the_client_goes_the_app_hears_it_on_every_stream(stage: Stage, ending: str) -> None:
    """Row 59: when a client leaves, the app is informed on every stream. 40 server-streaming calls instead of 100."""
    has_begun = Event()
    codes: list[int | None] = []
    ended = Event()

    def script(peer: Peer) -> None:
        app = Http2(peer, False)
        streams = [app.next_request() for _ in range(40)]
        for one in streams:
            app.headers(one.id, [(b":status", b"200")])
            app.data(one.id, b"first")
        has_begun.set()
        try:
            app.wait(lambda: all(one.reset is not None for one in streams))
        except (Ended, OSError):
            pass
        codes.extend(one.reset for one in streams)
        ended.set()

    stage.play(script)
    client = Http2(stage.connect())
    streams = [client.begin(request()) for _ in range(40)]
    client.wait(lambda: all(one.body for one in streams))
    assert has_begun.wait(DEADLINE_S)
    client.peer.close() if ending == "close" else client.peer.reset()
    assert ended.wait(5.0), "at once, and not by any timeout"
    assert stage.is_direct or codes == [CANCEL] * 40


# ---- row 61


@pytest.mark.parametrize("way", PROXIED, ids=lambda one: f"row61-{one}")
def test_draining_loses_no_call(way: str) -> None:
    """Row 61, what SIGTERM does in a proxy: the first GOAWAY still accepts every stream, the second names the last
    one, and running calls end normally.
    """
    topology = Topology()
    stage = Stage(topology, way)
    may_answer = Event()

    def script(peer: Peer) -> None:
        app = Http2(peer, False)
        streams = [app.next_request() for _ in range(20)]
        assert may_answer.wait(DEADLINE_S)
        for one in streams:
            app.answer(one, b"whole")
        late = app.next_request()
        app.answer(late, b"late")
        app.end()

    try:
        stage.play(script)
        client = Http2(stage.connect())
        streams = [client.begin(request()) for _ in range(20)]
        until(lambda: stage.app.connections and stage.app.saw.count(b"\x01") >= 20, "the app has them")
        topology.call(topology.drains[IN if way == IN else OUT].begin, lambda: None)
        late: Stream | None = None
        while not client.goaways:
            one = client.read()
            if one.kind == GOAWAY and len(client.goaways) == 1:
                late = client.begin(request(b"/late"))  # the first GOAWAY still accepts it
        assert client.goaways == [(0x7FFFFFFF, NO_ERROR)] and late is not None
        may_answer.set()
        assert [bytes(client.finish(one).body) for one in streams] == [b"whole"] * 20
        assert bytes(client.finish(late).body) == b"late"
        client.wait(lambda: len(client.goaways) == 2)
        assert client.goaways[-1] == (late.id, NO_ERROR)
        client.peer.close()
        until(lambda: not len(topology.drains[IN if way == IN else OUT]), "it may exit")
    finally:
        stage.close()
        topology.close()
    assert topology.faults == []


@pytest.mark.parametrize("stage", [*PROXIED], indirect=True)
def test_an_app_that_goes_away_gracefully_costs_no_call(stage: Stage) -> None:
    """Row 61: an app that goes away gracefully costs no call. It sends a GOAWAY after every 20 requests and answers
    later; 200 calls, ten at a time.
    """

    def script(peer: Peer) -> None:
        app = Http2(peer, False)
        for turn in range(20):
            stream = app.next_request()
            if turn == 17:
                app.goaway(0x7FFFFFFF)
                sleep(0.01)
            app.answer(stream)
        app.goaway(39)
        served = 20
        while any(not one.is_over for one in app.streams.values()) and served < 100:
            served += 1
            app.read()
        app.end()

    stage.play(script)
    client = Http2(stage.connect())
    failed = 0
    for _ in range(20):
        streams = [client.begin(request()) for _ in range(10)]
        failed += sum(client.finish(one).body != b"ok" for one in streams)
    assert failed == 0 and not client.goaways, "the app's GOAWAY is its own hop's"
    assert len(stage.app.connections) > 5


# ---- row 62


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_streams_above_a_goaway_are_done_elsewhere_or_said_to_be_refused(stage: Stage) -> None:
    """Row 62: streams above the number in a GOAWAY are sent elsewhere, or reported as refused. The app names the first
    of three streams, and comes back on the same port.
    """

    def script(peer: Peer) -> None:
        app = Http2(peer, False)
        if len(stage.app.connections) == 1:
            streams = [app.next_request() for _ in range(3)]
            app.goaway(1)
            app.answer(streams[0], b"first")
            sleep(0.01)
            return
        while True:
            app.answer(app.next_request(), b"again")

    stage.play(script)
    client = Http2(stage.connect())
    streams = [client.begin(request(b"/%d" % n)) for n in range(2)]
    upload = client.begin(request(method=b"POST"), end=False)
    client.data(upload.id, b"gone", end=True)
    for one in (*streams, upload):
        client.finish(one)
    assert [one.body for one in streams] == [b"first", b"again"]
    assert upload.reset == REFUSED_STREAM, "nobody has its body any more but its client"
    assert client.ask(request()).body == b"again" and len(stage.app.connections) >= 2


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_restarted_app_is_connected_to_again(stage: Stage) -> None:
    """Row 62: an app that was restarted is connected to again, after a close, a reset, and a GOAWAY with an error."""
    wanted = ("close", "reset", "calm")
    endings = iter(wanted)

    def script(peer: Peer) -> None:
        app = Http2(peer, False)
        app.answer(app.next_request())
        ending = next(endings, "")
        if ending == "close":
            return
        if ending == "reset":
            sleep(0.01)
            peer.reset()
        elif ending == "calm":
            app.goaway(1, ENHANCE_YOUR_CALM)
            return
        app.end()

    stage.play(script)
    client = Http2(stage.connect())
    side = OUT if stage.way == OUT else IN

    def closed() -> float:
        return stage.topology.metric(side, "tcp_close_total", 'peer="dst"')

    def has_closed(count: float) -> bool:
        return closed() >= count

    before = closed()
    for turn in range(1, 1 + len(wanted)):
        assert client.ask(request()).body == b"ok"
        until(partial(has_closed, before + turn), "the app's proxy has noticed")
    assert client.ask(request()).body == b"ok"
    assert len(stage.app.connections) == 4 and not client.goaways


# ---- row 64


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_nobody_is_pinged_unasked(stage: Stage) -> None:
    """Row 64: two minutes of silence on an idle connection bring no PING unless it is configured."""
    app = Serving()
    stage.play(app)
    client = Http2(stage.connect())
    client.ask(request())
    for _ in range(4):
        stage.topology.pass_time(30)
        sleep(0.01)
    assert client.is_alive()
    pings = [
        one
        for connection in [client, *app.connections]
        for one in connection.frames
        if one.kind == PING and not one.flags
    ]
    assert pings == []


@pytest.mark.parametrize("stage", [OUT], indirect=True)
def test_any_frame_is_a_sign_of_life_and_silence_ends_a_connection(stage: Stage) -> None:
    """Rows 58 and 64: with keepalive as discovery configures it (a PING after 10 s of silence, 3 s for anything to
    come), any frame shows that the peer lives, and silence ends the connection.
    """
    answers = Event()
    params = Http2Params(keep_alive_interval_s=10, keep_alive_timeout_s=3, keeps_alive_while_idle=True)

    def script(peer: Peer) -> None:
        app = Http2(peer, False)
        stream = app.next_request()
        if len(stage.app.connections) > 1:
            app.answer(stream, b"anew")
            app.end()
        app.headers(stream.id, [(b":status", b"200")])
        for _ in range(5):  # busy: data, and never an answer to a ping
            app.send(DATA, 0, stream.id, b"x")
            sleep(0.03)
            stage.topology.pass_time(8)
        answers.set()
        peer.sock.settimeout(DEADLINE_S)
        while peer.sock.recv(65536):
            pass

    stage.play(script, params)
    client = Http2(stage.connect())
    stream = client.begin(request())
    assert answers.wait(DEADLINE_S)
    client.wait(lambda: len(stream.body) == 5)
    assert not stream.is_over
    for _ in range(3):  # now it is silent
        stage.topology.pass_time(11)
        sleep(0.03)
    assert client.finish(stream).reset is not None
    assert client.ask(request()).body == b"anew"


# ---- row 65

SIZES = [12_000, 16_000, 17_000, 60_000]


@pytest.mark.parametrize("size", SIZES, ids=lambda one: f"row65-{one}")
@pytest.mark.parametrize("fields", [1, 100])
def test_big_heads_pass_as_they_do_without_a_mesh(stage: Stage, size: int, fields: int) -> None:
    values = [(b"x-%d" % n, b"v" * (size // fields - 40)) for n in range(fields)]
    app = stage.answers(ok(b"ok", *[name + b": " + value for name, value in values]))
    client = stage.connect()
    for _ in range(2):
        got = client.ask(get(b"/", *[name + b": " + value for name, value in values]))
        assert got.status == 200
        for message in (got, app.requests[-1]):
            assert [one for one in message.fields if one[0].startswith(b"x-")] == values
    serving = Serving(lambda connection, stream: connection.answer(stream, b"ok", *values))
    stage.play(serving)
    h2 = Http2(stage.connect())
    for _ in range(2):
        answered = h2.ask(request(b"/", *values))
        for stream in (answered, serving.requests[-1]):
            assert [one for one in stream.head if one[0].startswith(b"x-")] == values


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_head_beyond_the_limit_is_431_on_both_versions(stage: Stage) -> None:
    """Row 65: a head beyond the limit gets 431 on both versions, never a reset, and on HTTP/2 the connection goes on."""
    app = stage.answers()
    client = stage.connect()
    client.send(get(b"/", b"X: " + b"v" * 70_000))
    assert client.response().status == 431
    serving = Serving()
    stage.play(serving)
    h2 = Http2(stage.connect())
    assert h2.ask(request(b"/", (b"x", b"v" * 66_000))).status == 431
    assert h2.settings[6] == 65_536
    assert h2.ask(request()).body == b"ok"
    assert (len(app.requests), len(serving.requests)) == (0, 1)


# ---- row 67


@pytest.mark.parametrize("sizes", [[0], [0, 4096], [65536], [100, 0, 65536, 4096]], ids=lambda one: f"row67-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_changes_of_the_header_table_size_are_obeyed(stage: Stage, sizes: list[int]) -> None:
    """Row 67: changes of the header table size are obeyed. App and client both change theirs in the middle, with
    headers that vary.
    """
    left = list(sizes)

    def answer(connection: Http2, stream: Stream) -> None:
        if len(app.requests) % 10 == 5 and left:
            resize(connection, left.pop(0))
        connection.answer(stream, b"ok", *[(b"x-answer-%d" % n, b"%d" % (stream.id * n)) for n in range(5)])

    app = Serving(answer)
    stage.play(app)
    client = Http2(stage.connect())
    mine = list(sizes)
    for turn in range(60):
        if turn % 10 == 7 and mine:
            resize(client, mine.pop(0))
        values = [(b"x-%d" % n, b"%d" % (turn * n)) for n in range(5)]
        got = client.ask(request(b"/%d" % turn, *values))
        assert got.body == b"ok" and [one for one in app.requests[-1].head if one[0].startswith(b"x-")] == values
    assert len(app.connections) == 1


def resize(connection: Http2, size: int) -> None:
    """Announce a table size, and hold the other side to it once it has acknowledged it."""
    decoder = connection.decoder
    decoder.max_allowed_table_size = max(size, decoder.header_table.maxsize)
    connection.set(HEADER_TABLE_SIZE=size)
    before = sum(one.kind == SETTINGS and one.flags == 1 for one in connection.frames)
    connection.wait(lambda: sum(one.kind == SETTINGS and one.flags == 1 for one in connection.frames) > before)
    decoder.max_allowed_table_size = size
