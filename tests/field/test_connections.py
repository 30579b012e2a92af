"""Section 3 of the field log, first half: connections that are used again, how they end, and answers that come late or
early.
"""

from __future__ import annotations

from threading import Event, Thread
from time import sleep

import pytest

from tests.field.stage import Stage
from tests.kit.http1 import chunks, get, ok, post
from tests.kit.topology import PROXIED, until
from tests.kit.wire import DEADLINE_S, FIN, Peer

# ---- row 34


def half_closes(peer: Peer) -> None:
    peer.request()
    peer.send(ok())
    peer.half_close()
    peer.request()
    peer.send(ok(b"too late"))


def resets(peer: Peer) -> None:
    peer.request()
    peer.send(ok())
    sleep(0.002)
    peer.reset()


def says_more(peer: Peer) -> None:
    """Sends bytes on an idle connection, as servers do that tell a client its time is up."""
    peer.request()
    peer.send(ok())
    sleep(0.002)
    peer.send(ok(b"timeout", status=b"408 Request Timeout"))
    peer.has_left = True
    peer.request()


def says_more_at_once(peer: Peer) -> None:
    peer.request()
    peer.send(ok() + ok(b"poison"))
    peer.has_left = True
    peer.request()


def closes(peer: Peer) -> None:
    peer.request()
    peer.send(ok())


LEAVING = [half_closes, resets, says_more, says_more_at_once, closes]


@pytest.mark.parametrize("script", LEAVING, ids=lambda one: f"row34-{one.__name__}")
@pytest.mark.parametrize("method", [b"GET", b"POST"], ids=["get", "post"])
@pytest.mark.parametrize("pause_s", [0.005, 0.02])
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_connection_that_the_app_has_left_is_not_used_again(
    stage: Stage, script: object, method: bytes, pause_s: float
) -> None:
    stage.play(script)  # type: ignore[arg-type]
    client = stage.connect()
    for turn in range(4):
        if turn:
            until(lambda: stage.app.connections[-1].has_left, "the app is done with it")
            sleep(pause_s)
            stage.topology.call(lambda: None)  # by now the proxies have read that, however busy this machine is
            stage.topology.call(lambda: None)
        got = client.ask(get(b"/%d" % turn, method=method))
        assert (got.status, got.body) == (200, b"ok")
    assert [one.received.count(b" HTTP/1.1\r\n") for one in stage.app.connections] == [1] * 4


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_request_that_meets_a_closing_connection_goes_again_only_if_it_may(stage: Stage) -> None:
    """Row 34, the race itself: the app closes a kept connection when it sees the second request. The request is sent
    again only if it may be sent twice.
    """

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(ok())
        if len(stage.app.connections) == 1:
            peer.until(b"\r\n\r\n")

    for method, statuses in ((b"GET", {200}), (b"PUT", {200}), (b"POST", {502})):
        stage.close()
        stage.play(script)
        with Peer.connect(stage.where) as client:
            assert client.ask(get(method=method)).status == 200
            assert client.ask(get(method=method)).status in statuses
        assert stage.app.saw.count(method + b" / ") == (3 if 200 in statuses else 2)


# ---- row 35


@pytest.mark.parametrize(
    "option", [b"close", b"Close", b"keep-alive, close", b"CLOSE,X-A"], ids=lambda one: f"row35-{one.decode()}"
)
@pytest.mark.parametrize("size", [2, 300_000])
def test_a_client_that_says_close_hears_close_and_is_hung_up_on(stage: Stage, option: bytes, size: int) -> None:
    """Row 35: a client that sends `connection: close` gets it in the answer, and the connection ends. 25 connections
    instead of 1,000.
    """

    def script(peer: Peer) -> None:
        while True:
            request = peer.request()
            closes = stage.is_direct and bool(request.all(b"connection"))
            peer.send(ok(bytes(size), *[b"Connection: close"] * closes))
            if closes:
                return

    stage.play(script)
    for turn in range(25):
        with Peer.connect(stage.where) as client:
            request = get(b"/", b"Connection: " + option) if turn % 2 else post(b"hello", b"Connection: " + option)
            got = client.ask(request)
            assert (got.status, len(got.body)) == (200, size)
            assert [one.lower() for one in got.all(b"connection")] == [b"close"]
            assert client.rest() == b"" and client.end == FIN


@pytest.mark.parametrize(
    "lines", [(), (b"Connection: close",), (b"Connection: keep-alive",)], ids=["none", "close", "keep-alive"]
)
def test_an_http_1_0_client_is_hung_up_on(stage: Stage, lines: tuple[bytes, ...]) -> None:
    """Row 35: an HTTP/1.0 client, nginx's default for its upstreams, is disconnected after its answer."""
    app = stage.answers()
    for _ in range(25):
        with Peer.connect(stage.where) as client:
            assert client.ask(get(b"/", *lines).replace(b"HTTP/1.1", b"HTTP/1.0")).body == b"ok"
            assert client.rest() == b"" and client.end == FIN
    assert {one.start for one in app.requests} == {b"GET / HTTP/1.0"}


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_an_app_that_says_close_costs_its_client_nothing(stage: Stage) -> None:
    """Row 35, the other side: an app that closes its connection costs its client nothing, because the option concerns
    one hop.
    """

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(ok(b"ok", b"Connection: close"))

    stage.play(script)
    client = stage.connect()
    for _ in range(5):
        got = client.ask(get())
        assert got.body == b"ok" and not got.all(b"connection")
    assert len(stage.app.connections) == 5


# ---- row 37


@pytest.mark.parametrize("half_closes", [False, True], ids=["row37-idle", "row37-half-closed"])
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_an_answer_that_takes_minutes_reaches_its_client(stage: Stage, half_closes: bool, version: bytes) -> None:
    """Row 37: an answer that takes 130 seconds of the proxies' clock reaches its client. The sockets themselves wait
    for none of them.
    """
    body = bytes(range(256)) * 4096
    may_answer = Event()

    def script(peer: Peer) -> None:
        peer.request()
        assert may_answer.wait(DEADLINE_S)
        peer.send(ok(body))
        peer.rest()

    app = stage.play(script)
    client = stage.connect()
    client.send(get().replace(b"HTTP/1.1", b"HTTP/" + version))
    if half_closes:
        client.half_close()
    if half_closes and stage.is_pair:
        # A stream of HTTP/2 cannot express that its client only ends its sending side: the client is taken to have left.
        assert client.rest() == b""
        may_answer.set()
        return
    until(lambda: b"\r\n\r\n" in app.saw, "the request reaches the app")
    sleep(0.02)
    stage.topology.pass_time(130)
    sleep(0.02)
    assert not stage.app.connection().end
    may_answer.set()
    assert client.response().body == body
    if half_closes and not stage.is_direct:
        assert client.rest() == b"" and client.end == FIN


def test_a_body_that_rests_for_minutes_goes_on(stage: Stage) -> None:
    """Row 37: a pause of minutes in the middle of either body breaks nothing off."""
    has_passed = Event()

    def script(peer: Peer) -> None:
        peer.until(b"\r\n\r\n")
        assert peer.exactly(5) == b"hello"
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        assert has_passed.wait(DEADLINE_S)
        assert peer.exactly(5) == b"world"
        peer.send(b"later")

    app = stage.play(script)
    client = stage.connect()
    client.send(get(b"/", b"Content-Length: 10", method=b"POST"), b"hello")
    client.until(b"first")
    stage.topology.pass_time(130)
    has_passed.set()
    client.send(b"world")
    assert client.exactly(5) == b"later"
    assert app.saw.endswith(b"helloworld")


def test_pipelined_requests_of_a_half_closed_client_are_all_answered(stage: Stage) -> None:
    """Row 37: a client that has ended its sending side still gets all answers to its pipelined requests."""
    stage.answers(lambda request: ok(request.target))
    client = stage.connect()
    client.send(get(b"/1"), post(b"x", target=b"/2"), get(b"/3"))
    client.half_close()
    assert [client.response().body for _ in range(3)] == [b"/1", b"/2", b"/3"]
    assert stage.is_direct or (client.rest() == b"" and client.end == FIN)


# ---- row 38

EXPECT = b"Expect: 100-continue"
BIG = bytes(range(256)) * 1024


def says_continue(peer: Peer) -> None:
    peer.until(b"\r\n\r\n")
    peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert peer.exactly(len(BIG)) == BIG
    peer.send(ok(b"all of it"))
    peer.rest()


def test_an_expectation_is_met_by_the_app_alone(stage: Stage) -> None:
    """Row 38: the client waits for the 100 before it sends its body, and only the app sends one."""
    stage.play(says_continue)
    client = stage.connect()
    client.send(get(b"/", EXPECT, b"Content-Length: %d" % len(BIG), method=b"PUT"))
    assert client.response(informational=True).status == 100
    assert BIG[:10] not in stage.app.saw
    client.send(BIG)
    assert client.response().body == b"all of it"
    assert b"100-continue" in stage.app.saw


@pytest.mark.parametrize(
    "status",
    [b"417 Expectation Failed", b"401 Unauthorized", b"200 OK", b"302 Found"],
    ids=lambda one: f"row38-{one[:3].decode()}",
)
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_final_answer_without_100_ends_the_exchange_and_its_connection(stage: Stage, status: bytes) -> None:
    app = stage.answers()

    def script(peer: Peer) -> None:
        peer.until(b"\r\n\r\n")
        peer.send(ok(b"no", status=status))
        peer.rest()

    stage.close()
    stage.play(script)
    client = stage.connect()
    client.send(get(b"/", EXPECT, b"Content-Length: 10000000", method=b"POST"))
    got = client.response(informational=True)
    assert (got.status, got.body) == (int(status[:3]), b"no")
    assert got.all(b"connection") == [b"close"]
    assert client.rest() == b"" and client.end == FIN
    until(lambda: stage.app.connection().end, "the app's connection ends: what the body would be, nobody sends")
    assert app.requests == []


@pytest.mark.parametrize("body", ["length", "chunked"])
def test_an_app_that_ignores_the_expectation_gets_the_body_when_its_client_stops_waiting(
    stage: Stage, body: str
) -> None:
    """Row 38: a client that waits no longer for the 100 sends its body, which reaches an app that ignores the
    expectation. It waits 50 ms instead of a second.
    """
    app = stage.answers()
    client = stage.connect()
    line = b"Content-Length: 5" if body == "length" else b"Transfer-Encoding: chunked"
    client.send(get(b"/", EXPECT, line, method=b"POST"))
    assert client.is_quiet(0.05), "nobody says 100"
    client.send(b"hello" if body == "length" else chunks(b"hello"))
    assert client.response(informational=True).status == 200
    assert app.requests[0].body == b"hello"
    assert client.ask(get(b"/next")).status == 200


HINTS = [
    (b"103 Early Hints", b"Link: </style.css>; rel=preload"), (b"102 Processing", b"X-A: 1"), (b"103 Early Hints", b"Link: </b>"),
    (b"199 Odd", b"X-B: 2"),
]  # fmt: skip


def test_every_informational_answer_comes_as_it_was_sent_and_in_order(stage: Stage) -> None:
    """Row 38: each 1xx reaches the client as it was sent and in order, before the final answer exists."""
    heads = [b"HTTP/1.1 %b\r\n%b\r\n\r\n" % one for one in HINTS]
    goes_on = Event()

    def script(peer: Peer) -> None:
        while True:
            peer.request()
            peer.send(*heads)
            assert goes_on.wait(DEADLINE_S)
            peer.send(ok())

    stage.play(script)
    client = stage.connect()
    for _ in range(2):
        client.send(get())
        got = [client.response(informational=True) for _ in HINTS]
        assert [one.status for one in got] == [103, 102, 103, 199]
        assert [one.fields[0][1] for one in got] == [line.partition(b": ")[2] for _, line in HINTS]
        goes_on.set()
        assert client.response(informational=True).body == b"ok"


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_an_http_1_0_client_hears_no_1xx(stage: Stage) -> None:
    """Row 38: an HTTP/1.0 client gets no 1xx (RFC 9110 section 15.2)."""
    stage.answers(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok())
    client = stage.connect()
    got = client.ask(get().replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert got.status == 200 and b"103" not in client.received


# ---- row 40

UPLOAD = b"GET /smuggled HTTP/1.1\r\nHost: app.ns\r\n\r\n" * 600_000
"""24 MB instead of 50: more than all socket buffers on the way can hold."""
REFUSED = ok(b"too big", status=b"413 Content Too Large")


def answers_and_closes(peer: Peer) -> None:
    peer.exactly(65536)
    peer.send(REFUSED)
    peer.half_close()
    sleep(0.05)  # to close at once would reset the connection and so might lose the answer without any proxy


def answers_and_reads(peer: Peer) -> None:
    peer.exactly(65536)
    peer.send(REFUSED)
    while peer.sock.recv(1 << 18):
        pass


def answers_and_stops(peer: Peer) -> None:
    peer.exactly(65536)
    peer.send(REFUSED)
    is_over.wait(DEADLINE_S)


is_over = Event()
EARLY = [answers_and_closes, answers_and_reads, answers_and_stops]


@pytest.mark.parametrize("script", EARLY, ids=lambda one: f"row40-{one.__name__}")
@pytest.mark.parametrize("form", ["length", "chunked", "expect"])
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_an_early_answer_reaches_a_client_that_still_uploads(stage: Stage, script: object, form: str) -> None:
    is_over.clear()
    stage.play(script)  # type: ignore[arg-type]
    client = stage.connect()
    lines = {
        "length": [b"Content-Length: %d" % len(UPLOAD)],
        "chunked": [b"Transfer-Encoding: chunked"],
        "expect": [b"Content-Length: %d" % len(UPLOAD), EXPECT],
    }[form]
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(UPLOAD), UPLOAD) if form == "chunked" else UPLOAD

    def upload() -> None:
        try:
            client.sock.sendall(get(b"/", *lines, method=b"POST"))
            if form == "expect":
                sleep(0.02)  # it got no answer, so it goes on
            client.sock.sendall(body)
        except OSError:
            pass

    uploader = Thread(target=upload, daemon=True)
    uploader.start()
    got = client.response()
    assert (got.status, got.body) == (413, b"too big")
    uploader.join(DEADLINE_S)
    assert not uploader.is_alive(), "the upload is taken or refused, not left hanging"
    rest = client.state(0.02)
    assert rest in (FIN, "open") and b"HTTP/1.1 " not in client.received.partition(b"too big")[2]
    is_over.set()
    assert sum(one.received.count(b"POST / ") for one in stage.app.connections) == 1
    assert len(stage.app.connections) == 1


@pytest.mark.parametrize("size", [10, 100_000], ids=lambda one: f"row40-rest-{one}")
def test_a_short_rest_of_an_upload_is_drained_and_the_connection_serves_on(stage: Stage, size: int) -> None:
    def script(peer: Peer) -> None:
        if len(stage.app.connections) == 1:
            peer.until(b"\r\n\r\n")
            peer.send(REFUSED)
            peer.exactly(size)
        while True:
            request = peer.request()
            peer.send(ok(request.target))

    stage.play(script)
    client = stage.connect()
    client.send(get(b"/", b"Content-Length: %d" % size, method=b"POST"), b"x")
    assert client.response().status == 413
    client.send(UPLOAD[: size - 1], get(b"/next"))
    assert client.response().body == b"/next"


# ---- row 49


def test_pipelined_requests_are_answered_in_order(stage: Stage) -> None:
    """Row 49: pipelined requests are answered in their order, although the first one is slow."""

    def script(peer: Peer) -> None:
        while True:
            request = peer.request()
            if request.target == b"/1":
                sleep(0.05)
            peer.send(ok(request.target))

    stage.play(script)
    client = stage.connect()
    client.send(get(b"/1"), get(b"/2"), get(b"/3"))
    assert [client.response().body for _ in range(3)] == [b"/1", b"/2", b"/3"]


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_pipelined_request_is_not_sent_before_its_turn(stage: Stage) -> None:
    """Row 49: a pipelined request is not sent before the one in front of it is answered, if that one is not safe."""
    may_answer = Event()
    seen: list[bytes] = []

    def script(peer: Peer) -> None:
        while True:
            request = peer.request()
            seen.append(request.target)
            assert may_answer.wait(DEADLINE_S)
            peer.send(ok(request.target))

    stage.play(script)
    client = stage.connect()
    client.send(post(b"a", target=b"/1"), post(b"b", target=b"/2"), get(b"/3"))
    until(lambda: seen, "the first reaches the app")
    assert client.is_quiet(0.03) and seen == [b"/1"]
    may_answer.set()
    assert [client.response().body for _ in range(3)] == [b"/1", b"/2", b"/3"]


@pytest.mark.parametrize(
    "garbage",
    [b"garbage\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", b"GET\r\n\r\n"],
    ids=lambda one: f"row49-{one[:7]!r}",
)
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_garbage_behind_requests_is_refused_after_their_answers(stage: Stage, garbage: bytes) -> None:
    app = stage.answers(lambda request: ok(request.target))
    client = stage.connect()
    client.send(get(b"/1"), post(b"x", target=b"/2"), garbage)
    assert [client.response().body for _ in range(2)] == [b"/1", b"/2"]
    assert client.response().status == 400
    assert client.rest() == b"" and client.end == FIN
    assert len(app.requests) == 2


def test_requests_in_pieces_and_pipelined_at_once(stage: Stage) -> None:
    """Row 49: how the stream of pipelined requests is cut into segments changes nothing."""
    stage.answers(lambda request: ok(request.target + request.body))
    wanted = [
        (get(b"/%d" % n), b"/%d" % n) if n % 3 else (post(b"b%d" % n, target=b"/%d" % n), b"/%db%d" % (n, n))
        for n in range(12)
    ]
    stream = b"".join(one for one, _ in wanted)
    for size in (1, 7, 100, len(stream)):
        with Peer.connect(stage.where) as client:
            for start in range(0, len(stream), size):
                client.send(stream[start : start + size])
            assert [client.response().body for _ in wanted] == [one for _, one in wanted]


# ---- both, for all of the above: nothing is left behind


def test_nothing_of_these_connections_is_left(stage: Stage) -> None:
    """Rows 34 to 49: of the clients and apps that left, no connection and no task remains."""
    stage.answers()
    with Peer.connect(stage.where) as client:
        client.ask(get())  # the proxies' own HTTP/2 connection, if there is one, stays
    resting = 1 if stage.is_pair else 0
    stage.topology.pass_time(4)
    until(lambda: stage.topology.connections <= resting, "only that is left")
    clients = [stage.connect() for _ in range(5)]
    for index, client in enumerate(clients):
        client.send(get() if index else b"GET / HTTP/1.1\r\nHos")
    for client in clients[1:]:
        client.response()
    for client in clients[:3]:
        client.close()
    for client in clients[3:]:
        client.reset()
    sleep(0.05)
    stage.topology.pass_time(4)  # between the proxies HTTP/1 connections may rest for three seconds
    until(lambda: stage.topology.connections <= resting, "connections end with their clients", 1.0)
