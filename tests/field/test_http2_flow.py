"""Sections 4 and 5 of the field log, the rest: flow control, translation to HTTP/1, detection of HTTP/2."""

from __future__ import annotations

import struct
from threading import Event
from time import sleep, thread_time

import pytest

from tests.field.stage import Stage
from tests.kit.app import Answering
from tests.kit.frames import (
    DATA,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    INITIAL_WINDOW_SIZE,
    NO_ERROR,
    PREFACE,
    PROTOCOL_ERROR,
    SETTINGS,
    Fields,
    Http2,
    Serving,
    Stream,
    request,
)  # fmt: skip
from tests.kit.http1 import chunks, get
from tests.kit.topology import IN, OUT, PAIR, PROXIED
from tests.kit.wire import DEADLINE_S, Peer

CARRIED = (b"l5d-orig-proto", b"HTTP/1.1")
"""The field that marks an HTTP/2 request as one for an HTTP/1 app, at the inbound side."""
MEGABYTE = bytes(range(256)) * 4096

# ---- row 4, over HTTP/2


@pytest.mark.parametrize(
    "head", [b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["row4-h2-1.0", "row4-h2-1.1"]
)
@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("stage", [IN], indirect=True)
def test_the_end_of_a_connection_is_the_end_of_a_stream_and_a_reset_is_none(
    stage: Stage, head: bytes, is_cut: bool
) -> None:
    has_arrived = Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head, MEGABYTE)
        if is_cut:
            assert has_arrived.wait(DEADLINE_S)
            peer.reset()

    stage.play(script)
    client = Http2(stage.connect_as_peer())
    stream = client.begin(request(b"/", CARRIED))
    client.wait(lambda: len(stream.body) == len(MEGABYTE))
    has_arrived.set()
    client.finish(stream)
    assert stream.has_ended is not is_cut and (stream.reset is None) is not is_cut
    assert stream.body == MEGABYTE
    assert client.is_alive()


# ---- row 40, over HTTP/2


@pytest.mark.parametrize("reads_on", [True, False], ids=["row40-h2-resets", "row40-h2-stops"])
def test_an_early_answer_over_http_2(stage: Stage, reads_on: bool) -> None:
    """Row 40 over HTTP/2: an early answer, 413 after 64 kB and then RST_STREAM NO_ERROR, arrives whole, and the
    connection goes on. 2 MB instead of 50.
    """

    def script(peer: Peer) -> None:
        app = Http2(peer, False, gives_credit=reads_on)
        stream = app.next_request(whole=False)
        app.wait(lambda: len(stream.body) >= 60_000)
        app.headers(stream.id, [(b":status", b"413")])
        app.data(stream.id, b"too big", end=True)
        if reads_on:
            app.send(3, 0, stream.id, bytes(4))
        app.answer(app.next_request())
        app.end()

    stage.play(script)
    client = Http2(stage.connect())
    stream = client.begin(request(method=b"POST"), end=False)
    client.data(stream.id, MEGABYTE[:65535])
    client.wait(lambda: stream.has_ended)
    assert (stream.status, bytes(stream.body)) == (413, b"too big")
    if not stage.is_direct:
        client.wait(lambda: stream.reset is not None)
        assert stream.reset == NO_ERROR
    if stream.reset is None:
        client.rst(stream.id)
    assert client.ask(request()).body == b"ok"


# ---- row 55


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_what_is_thrown_away_gives_its_credit_back(stage: Stage) -> None:
    """Row 55: discarded data gives its credit back. 150 downloads of 64 kB are cancelled after a frame, instead of
    500; then 3 MB come over the connection that they shared.
    """

    def answer(connection: Http2, stream: Stream) -> None:
        size = int(stream.get(b":path")[1:])  # type: ignore[index]
        connection.answer(stream, MEGABYTE[:65536] * (size // 65536))

    stage.play(Serving(answer))
    client = Http2(stage.connect())
    for _ in range(150):
        stream = client.begin(request(b"/65536"))
        while not stream.body:
            client.read()
        client.rst(stream.id)
    got = client.ask(request(b"/3145728"))
    assert got.body == MEGABYTE * 3
    assert len(stage.app.connections) == 1


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_uploads_that_nobody_takes_give_their_credit_back(stage: Stage) -> None:
    """Row 55, the other way: uploads that the app resets give their credit back."""

    def script(peer: Peer) -> None:
        app = Http2(peer, False)
        for _ in range(60):
            app.rst(app.next_request(whole=False).id)
        last = app.next_request()
        app.answer(last, b"%d" % len(last.body))
        app.end()

    stage.play(script)
    client = Http2(stage.connect())
    for _ in range(60):
        stream = client.begin(request(method=b"POST"), end=False)
        try:
            client.data(stream.id, MEGABYTE[:50_000])
        finally:
            client.finish(stream)
    assert client.ask(request(method=b"POST"), MEGABYTE * 2).body == b"%d" % (2 << 20)


# ---- row 56


def test_uploads_share_a_window_that_comes_only_when_it_is_used_up(stage: Stage) -> None:
    """Row 56: uploads share a window that the app renews only when all of it is used up. 60 uploads of 10 kB at once
    instead of 200.
    """
    sizes: list[int] = []

    def script(peer: Peer) -> None:
        app = Http2(peer, False, gives_credit=False)
        credited = 0
        answered: set[int] = set()
        while len(answered) < 60:
            app.read()
            got = sum(len(one.body) for one in app.streams.values())
            if got - credited >= 65535:
                credited += 65535
                app.credit(0, 65535)
            for number, one in app.streams.items():
                if one.has_ended and number not in answered:
                    answered.add(number)
                    sizes.append(len(one.body))
                    app.answer(one)
        app.end()

    stage.play(script)
    client = Http2(stage.connect())
    streams = [client.begin(request(method=b"POST"), end=False) for _ in range(60)]
    for start in (0, 5000):
        for one in streams:
            client.data(one.id, MEGABYTE[start : start + 5000], end=start > 0)
    for one in streams:
        assert client.finish(one).body == b"ok"
    assert sizes == [10_000] * 60


def test_an_idle_stream_does_not_hold_a_window_that_another_needs(stage: Stage) -> None:
    """Row 56: an idle stream does not keep the connection's window from another one, although the two depend on each
    other.
    """

    def script(peer: Peer) -> None:
        app = Http2(peer, False)
        idle, busy = app.next_request(whole=False), app.next_request(whole=False)
        for one in (idle, busy):
            app.headers(one.id, [(b":status", b"200")])
        app.wait(lambda: busy.has_ended)
        app.data(busy.id, b"%d" % len(busy.body), end=True)
        app.data(idle.id, b"done", end=True)
        app.end()

    stage.play(script)
    client = Http2(stage.connect())
    idle = client.begin(request(method=b"POST"), end=False)
    busy = client.begin(request(method=b"POST"), end=False)
    client.wait(lambda: idle.heads and busy.heads)
    client.data(idle.id, b"x")
    client.data(busy.id, MEGABYTE, end=True)
    assert client.finish(busy).body == b"%d" % len(MEGABYTE)
    assert client.finish(idle).body == b"done"


def test_a_client_that_does_not_read_one_stream_still_gets_the_others(stage: Stage) -> None:
    """Row 56, downloads: a client that does not read one stream still gets the others, because we choose the
    connection's window.
    """

    def answer(connection: Http2, stream: Stream) -> None:
        connection.answer(stream, MEGABYTE[:40_000])

    stage.play(Serving(answer))
    client = Http2(stage.connect(), gives_credit=False, settings={INITIAL_WINDOW_SIZE: 10_000})
    client.credit(0, 1 << 24)
    slow = client.begin(request())
    client.wait(lambda: len(slow.body) == 10_000)
    if not stage.is_direct:  # the scripted app itself serves one after the other
        for _ in range(10):
            other = client.begin(request())
            client.credit(other.id, 1 << 20)
            assert client.finish(other).body == MEGABYTE[:40_000]
    client.credit(slow.id, 1 << 20)
    assert client.finish(slow).body == MEGABYTE[:40_000]


# ---- row 71


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_windows_beyond_their_limit_are_a_fault(stage: Stage) -> None:
    """Row 71: a window beyond its limit is a fault; a stream's ends that stream, the connection's ends the connection."""
    stage.play(Serving(lambda connection, stream: None))
    client = Http2(stage.connect())
    stream = client.begin(request())
    client.credit(stream.id, 0x7FFFFFFF)
    assert client.finish(stream).reset == FLOW_CONTROL_ERROR
    assert client.is_alive()
    client.credit(0, 0x7FFFFFFF)
    end = client.end()
    assert end is not None and end[1] == FLOW_CONTROL_ERROR


@pytest.mark.parametrize("value", [0x80000000, 0xFFFFFFFF], ids=lambda one: f"row71-{one:x}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_an_initial_window_beyond_the_limit_is_a_fault(stage: Stage, value: int) -> None:
    stage.play(Serving())
    client = Http2(stage.connect())
    client.send(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, value))
    end = client.end()
    assert end is not None and end[1] == FLOW_CONTROL_ERROR


def test_windows_may_become_negative(stage: Stage) -> None:
    """Row 71: a client that shrinks its windows during a body makes them negative, and gets not a byte until they are
    positive again.
    """
    stage.play(Serving(lambda connection, stream: connection.answer(stream, MEGABYTE[:200_000])))
    client = Http2(stage.connect(), gives_credit=False, settings={INITIAL_WINDOW_SIZE: 50_000})
    client.credit(0, 1 << 24)
    stream = client.begin(request())
    client.wait(lambda: len(stream.body) == 50_000)
    client.set(INITIAL_WINDOW_SIZE=10_000)
    client.credit(stream.id, 40_000)  # 40,000 below nothing, now at nothing
    assert client.is_alive()
    sleep(0.02)
    assert client.is_alive() and len(stream.body) == 50_000
    client.credit(stream.id, 1)
    client.wait(lambda: len(stream.body) == 50_001)
    client.set(INITIAL_WINDOW_SIZE=1 << 20)
    assert client.finish(stream).body == MEGABYTE[:200_000]


# ---- row 73


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_the_time_that_a_body_takes_grows_with_its_size(stage: Stage) -> None:
    """Row 73: the time that a body takes grows with its size, not faster. 2 MB and 16 MB in frames of 16 kB instead of
    50 MB, without the delay of a network. Time is the CPU time of the proxies, which a busy machine does not lengthen.
    """
    sizes = {b"/2": MEGABYTE * 2, b"/16": MEGABYTE * 16}
    stage.play(Serving(lambda connection, stream: connection.answer(stream, sizes[stream.get(b":path") or b""])))
    client = Http2(stage.connect())
    client.ask(request(b"/2"))

    def took(path: bytes) -> float:
        began = stage.topology.call(thread_time)
        assert len(client.ask(request(path)).body) == len(sizes[path])
        return stage.topology.call(thread_time) - began

    small = min(took(b"/2") for _ in range(3))
    assert took(b"/16") < 8 * small * 4


# ---- row 68

ODD_FIELDS: dict[str, tuple[bytes, bytes]] = {
    "whitespace-around": (b"test1", b" \ta\t"),
    "leading-space": (b"test1", b" a"),
    "trailing-tab": (b"test1", b"a\t"),
    "empty-name": (b"", b"x"),
    "upper": (b"Foo", b"bar"),
    "cr-lf": (b"x", b"a\r\nX: y"),
    "cr": (b"x", b"a\rb"),
    "lf": (b"x", b"a\nb"),
    "nul": (b"x", b"a\0b"),
    "name-space": (b"x y", b"z"),
    "name-colon": (b"x:y", b"z"),
    "name-cr-lf": (b"x\r\ny", b"z"),
    "name-nul": (b"x\0", b"z"),
    "name-high": (b"x\xe9", b"z"),
    "length-twice": (b"content-length", b"5, 5"),
    "length-plus": (b"content-length", b"+5"),
    "transfer-encoding": (b"transfer-encoding", b"chunked"),
    "host-evil": (b"host", b"a\r\nX: y"),
    "host-userinfo": (b"host", b"u@app.ns"),
    "unknown-pseudo": (b":foo", b"x"),
    "status": (b":status", b"200"),
}
ODD_PSEUDO: dict[str, tuple[bytes, bytes]] = {
    "path-space": (b":path", b"/a b"),
    "path-lf": (b":path", b"/a\nb"),
    "path-cr-lf": (b":path", b"/ HTTP/1.1\r\nX: y"),
    "path-empty": (b":path", b""),
    "path-relative": (b":path", b"a"),
    "path-absolute": (b":path", b"http://evil/"),
    "method-smuggles": (b":method", b"GET / HTTP/1.1\r\nX:"),
    "method-space": (b":method", b"GET /x"),
    "method-empty": (b":method", b""),
    "scheme-smuggles": (b":scheme", b"http://evil/ HTTP/1.1\r\nX: y\r\n\r\n"),
    "authority-smuggles": (b":authority", b"a\r\nX: y"),
    "authority-userinfo": (b":authority", b"user@app.ns"),
    "authority-nul": (b":authority", b"app.ns\0.evil"),
    "authority-path": (b":authority", b"app.ns/x"),
}


def refused(stage: Stage, app: Answering | Serving, client: Http2, fields: Fields, good: Fields) -> None:
    stream = client.finish(client.begin(fields))
    assert stream.reset == PROTOCOL_ERROR or stream.status == 400
    got = client.ask(good)
    assert got.body == b"ok"
    assert len(app.requests) == 1 and b"X: y" not in stage.app.saw


@pytest.mark.parametrize("case", [*ODD_FIELDS, *ODD_PSEUDO], ids=lambda one: f"row68-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_what_http_1_could_not_carry_never_gets_that_far(stage: Stage, case: str) -> None:
    """What HTTP/1 could not carry is refused: on the way to an HTTP/2 app everywhere, and to an HTTP/1 app behind the
    inbound side.
    """
    good = request(b"/good")
    bad = (
        [*good, ODD_FIELDS[case]]
        if case in ODD_FIELDS
        else [ODD_PSEUDO[case] if one[0] == ODD_PSEUDO[case][0] else one for one in good]
    )
    serving = Serving()
    stage.play(serving)
    refused(stage, serving, Http2(stage.connect()), bad, good)
    if stage.way == IN:
        stage.close()
        app = stage.answers()
        refused(stage, app, Http2(stage.connect_as_peer()), [*bad, CARRIED], [*good, CARRIED])


@pytest.mark.parametrize("size", [b"4", b"6", b"0"], ids=lambda one: f"row68-length-{one.decode()}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_body_that_is_not_of_its_length_never_reaches_an_app_as_whole(stage: Stage, size: bytes) -> None:
    for carried in ([], [CARRIED]) if stage.way == IN else ([],):
        app: Answering | Serving = Answering() if carried else Serving()
        stage.close()
        stage.play(app)
        client = Http2(stage.connect_as_peer() if carried else stage.connect())
        stream = client.begin([*request(method=b"POST"), (b"content-length", size), *carried], end=False)
        client.send(DATA, 0, stream.id, b"he")
        client.send(DATA, END_STREAM, stream.id, b"llo")
        got = client.finish(stream)
        # A head that declares no body is a whole request before its DATA is there to contradict it: it may be answered first.
        assert got.reset == PROTOCOL_ERROR or got.status == 400 or (size == b"0" and got.status == 200)
        assert all(size == b"0" and one.body == b"" for one in app.requests) and client.is_alive()


# ---- row 70


@pytest.mark.parametrize("stage", [IN], indirect=True)
def test_crumbs_of_a_cookie_are_one_field_for_an_http_1_app(stage: Stage) -> None:
    """Row 70: for an HTTP/1 app the pieces of a cookie become one field."""
    app = stage.answers()
    client = Http2(stage.connect_as_peer())
    client.ask(request(b"/", (b"cookie", b"a=1"), (b"x", b"y"), (b"cookie", b"b=2"), CARRIED))
    assert app.requests[0].all(b"cookie") == [b"a=1; b=2"] and app.requests[0].all(b"host") == [b"app.ns"]


def without(name: bytes) -> Fields:
    return [one for one in request() if one[0] != name]


ORDERS: dict[str, Fields] = {
    "duplicate-path": [*request(), (b":path", b"/other")],
    "duplicate-method": [*request()[:1], *request()],
    "duplicate-authority": [*request(), (b":authority", b"app.ns")],
    "pseudo-after-regular": [*request()[:3], (b"x", b"y"), request()[3]],
    "no-path": without(b":path"),
    "no-method": without(b":method"),
    "no-scheme": without(b":scheme"),
    "hosts-disagree": [*request(), (b"host", b"other.ns")],
    "two-hosts": [*without(b":authority"), (b"host", b"app.ns"), (b"host", b"app.ns")],
    "connect-with-path": [(b":method", b"CONNECT"), *request()[1:]],
}


@pytest.mark.parametrize("case", ORDERS, ids=lambda one: f"row70-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_malformed_order_of_fields_is_refused(stage: Stage, case: str) -> None:
    serving = Serving()
    stage.play(serving)
    refused(stage, serving, Http2(stage.connect()), ORDERS[case], request())


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_host_alone_and_host_that_agrees_pass(stage: Stage) -> None:
    """Row 70: Host without `:authority`, and a Host that equals it, are accepted."""
    serving = Serving()
    stage.play(serving)
    client = Http2(stage.connect())
    for fields in (
        [*request(), (b"host", b"app.ns")],
        [*request(), (b"host", b"APP.ns")],
        [*without(b":authority"), (b"host", b"app.ns")],
    ):
        assert client.ask(fields).body == b"ok"
    assert {(one.get(b":authority") or one.get(b"host")) for one in serving.requests} == {b"app.ns"}


# ---- row 82


def speaks_both(peer: Peer) -> None:
    if peer.sock.recv(3, 2) == b"PRI":  # MSG_PEEK
        Serving()(peer)
    else:
        Answering()(peer)


@pytest.mark.parametrize("stage", [IN, OUT, PAIR], indirect=True)
@pytest.mark.parametrize("cut", [0, 1, 3, 10, 23], ids=lambda one: f"row82-cut-{one}")
def test_http_2_is_known_by_its_preface_in_turn_with_http_1_on_one_port(stage: Stage, cut: int) -> None:
    """Row 82: HTTP/2 is detected by its preface on a port that also gets HTTP/1: in the clear, over mTLS in the pair,
    and with the preface in two segments.
    """
    app = stage.play(speaks_both)
    for _ in range(2):
        raw = stage.connect()
        if cut:
            raw.send(PREFACE[:cut])
            sleep(0.01)
            raw.send(PREFACE[cut:])
            client = Http2(Rest(raw))  # type: ignore[arg-type]
        else:
            client = Http2(raw)
        assert client.ask(request()).body == b"ok"
        assert stage.connect().ask(get()).body == b"ok"
    assert b"l5d-orig-proto" not in app.saw


class Rest:
    """A Peer whose preface has been sent."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def send(self, *data: bytes) -> None:
        if data != (PREFACE,):
            self._peer.send(*data)

    def exactly(self, size: int) -> bytes:
        return self._peer.exactly(size)


@pytest.mark.parametrize("stage", [IN], indirect=True)
def test_the_mark_of_a_carried_request_is_taken_off_and_only_its_own_request_is_http_1(stage: Stage) -> None:
    """Row 82: the mark of a carried request is removed, and only the marked request is HTTP/1; marked and unmarked
    streams share one connection.
    """
    app = stage.play(speaks_both)
    client = Http2(stage.connect_as_peer())
    for _ in range(2):
        assert client.ask(request(b"/h1", CARRIED)).body == b"ok"
        assert client.ask(request(b"/h2")).body == b"ok"
    firsts = sorted(one.received[:3] for one in app.connections)
    assert firsts == [b"GET", b"PRI"] and b"orig-proto" not in app.saw


@pytest.mark.parametrize("stage", [IN], indirect=True)
@pytest.mark.parametrize("mark", [b"HTTP/1.1", b"HTTP/1.0"], ids=lambda one: f"row82-{one.decode()}")
def test_the_mark_on_http_1_itself_means_nothing(stage: Stage, mark: bytes) -> None:
    app = stage.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(b"ok"))
    assert stage.connect().ask(get(b"/", b"l5d-orig-proto: " + mark)).body == b"ok"
    assert app.requests[0].start == b"GET / HTTP/1.1"
