"""Section 3 of the field log, second half: upgrades, hop-by-hop fields, trailers."""

from __future__ import annotations

import pytest

from tests.field.stage import Stage
from tests.kit.frames import ENABLE_CONNECT_PROTOCOL, REFUSED_STREAM, Fields, Http2, Serving, request
from tests.kit.http1 import Message, chunks, get, ok, post
from tests.kit.topology import IN, MTLS, PAIR, PROXIED, until
from tests.kit.wire import FIN, Peer

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
WEBSOCKET = get(
    b"/chat", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Key: " + KEY, b"Sec-WebSocket-Version: 13"
)
SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
LOOKALIKE = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\x00\xff" + b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n\x81\x05"
)


def echoes(peer: Peer) -> None:
    """Accepts an upgrade, sends first, then sends back what it receives."""
    peer.until(b"\r\n\r\n")
    peer.send(SWITCHING + LOOKALIKE)
    while data := peer.some():
        if data == b"die":
            peer.reset()
        peer.send(data)
    peer.send(b"bye")


def test_a_websocket_opens_and_carries_anything_both_ways(stage: Stage) -> None:
    """Rows 41 and 43: a WebSocket opens and carries bytes in the same segment as the 101, bytes that look like HTTP,
    and a half-close.
    """
    stage.play(echoes)
    client = stage.connect()
    got = client.ask(WEBSOCKET)
    assert got.status == 101
    assert got.one(b"upgrade") == b"websocket" and (got.one(b"connection") or b"").lower() == b"upgrade"
    assert got.one(b"sec-websocket-accept") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert client.exactly(len(LOOKALIKE)) == LOOKALIKE
    for data in (LOOKALIKE, b"\r\n\r\n", b"0\r\n\r\n", bytes(range(256)) * 1000):
        client.send(data)
        assert client.exactly(len(data)) == data
    client.half_close()
    assert client.rest() == b"bye" and client.end == FIN


def test_bytes_glued_to_the_request_for_an_upgrade_reach_the_app(stage: Stage) -> None:
    """Row 43: bytes that an eager client sends directly behind its request for an upgrade reach the app."""
    stage.play(echoes)
    client = stage.connect()
    client.send(WEBSOCKET + LOOKALIKE)
    assert client.response().status == 101
    assert client.exactly(2 * len(LOOKALIKE)) == 2 * LOOKALIKE


def test_an_upgrade_behind_other_requests_of_its_connection(stage: Stage) -> None:
    """Row 41: an upgrade may follow other requests on its connection."""

    def script(peer: Peer) -> None:
        while True:
            message = peer.request()
            if message.all(b"upgrade"):
                peer.send(SWITCHING)
                break
            peer.send(ok(message.target))
        peer.send(peer.exactly(5))

    stage.play(script)
    client = stage.connect()
    assert client.ask(get(b"/1")).body == b"/1"
    assert client.ask(post(b"x", target=b"/2")).body == b"/2"
    assert client.ask(WEBSOCKET).status == 101
    client.send(b"GET /")
    assert client.rest() == b"GET /"


def test_a_refused_upgrade_is_an_answer_and_the_connection_stays_http(stage: Stage) -> None:
    """Row 41: an upgrade that is refused with 426, 200 or 400 leaves no tunnel, and the connection stays HTTP."""
    answers = [b"426 Upgrade Required", b"200 OK", b"400 Bad Request"]
    app = stage.answers(lambda _: ok(b"no", status=answers[(len(app.requests) - 1) % 3]))
    client = stage.connect()
    for status in answers:
        got = client.ask(WEBSOCKET)
        assert (got.status, got.body) == (int(status[:3]), b"no")
    assert client.ask(get()).status == 426


def test_a_tunnel_counts_as_open_until_either_side_ends(stage: Stage) -> None:
    """Row 41: a tunnel counts as open until either side ends; it leaves the pool, and nothing of it remains."""
    stage.play(echoes)
    resting = stage.topology.connections
    clients = [stage.connect() for _ in range(3)]
    for client in clients:
        assert client.ask(WEBSOCKET).status == 101
    assert len(stage.app.connections) == 3
    clients[0].reset()
    clients[1].close()
    clients[2].send(b"die")
    clients[2].rest()
    clients[2].close()
    until(lambda: all(one.sock.fileno() < 0 for one in stage.app.connections), "the app's sides end")
    until(lambda: stage.topology.connections <= resting + stage.is_pair, "nothing is left of them")


@pytest.mark.parametrize("name", [b"chat", b"foo/2", b"websocket, chat"], ids=lambda one: f"row41-{one.decode()}")
def test_any_protocol_may_be_switched_to(stage: Stage, name: bytes) -> None:
    def script(peer: Peer) -> None:
        message = peer.request()
        assert message.one(b"upgrade") == name
        peer.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: %b\r\n\r\nhi"
            % name.partition(b",")[0]
        )
        peer.rest()

    stage.play(script)
    client = stage.connect()
    got = client.ask(get(b"/", b"Connection: upgrade", b"Upgrade: " + name))
    assert got.status == 101 and client.exactly(2) == b"hi"


# ---- row 44


def both(peer: Peer) -> None:
    """An app on a port for prior-knowledge HTTP/2 and for upgrades from HTTP/1."""
    first = peer.sock.recv(3, 2)  # MSG_PEEK
    if first == b"PRI":
        Serving()(peer)
    else:
        echoes(peer)


def test_a_port_for_http_2_and_for_websockets(stage: Stage) -> None:
    """Row 44: HTTP/2 and WebSockets on one port, in turn; each connection is served by what it speaks."""
    stage.play(both)
    for _ in range(3):
        assert Http2(stage.connect()).ask(request()).body == b"ok"
        client = stage.connect()
        assert client.ask(WEBSOCKET).status == 101
        assert client.exactly(len(LOOKALIKE)) == LOOKALIKE


EXTENDED: Fields = [
    (b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"http"), (b":authority", b"app.ns"), (b":path", b"/chat"),
    (b"sec-websocket-version", b"13"),
]  # fmt: skip


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_extended_connect_toward_an_app_that_takes_it(stage: Stage) -> None:
    """Row 44: extended CONNECT reaches an app that has announced it."""

    def script(peer: Peer) -> None:
        app = Http2(peer, False, settings={ENABLE_CONNECT_PROTOCOL: 1})
        stream = app.next_request(whole=False)
        assert dict(stream.head)[b":protocol"] == b"websocket"
        app.headers(stream.id, [(b":status", b"200")])
        app.wait(lambda: len(stream.body) >= 5)
        app.data(stream.id, bytes(stream.body), end=True)
        app.end()

    stage.play(script)
    client = Http2(stage.connect())
    stream = client.begin(EXTENDED, end=False)
    client.wait(lambda: stream.heads)
    assert client.settings[ENABLE_CONNECT_PROTOCOL] == 1 and stream.status == 200
    client.data(stream.id, b"hello", end=True)
    assert client.finish(stream).body == b"hello"


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_extended_connect_toward_an_app_that_never_announced_it(stage: Stage) -> None:
    """Row 44: extended CONNECT toward an app that never announced it is refused, by an answer or a reset. The app
    never sees it, and the connection goes on.
    """
    app = Serving()
    stage.play(app)
    client = Http2(stage.connect())
    stream = client.finish(client.begin(EXTENDED, end=False))
    assert stream.status >= 400 or stream.reset is not None
    assert stream.reset != REFUSED_STREAM, "that would invite another try"
    assert client.ask(request(b"/next")).body == b"ok"
    assert [one.get(b":path") for one in app.requests] == [b"/next"]


# ---- row 46

HOPS = [
    b"Connection: X-A, close", b"X-A: 1", b"Keep-Alive: timeout=5", b"Proxy-Connection: keep-alive", b"TE: trailers, deflate",
    b"Upgrade: foo", b"X-B: 2",
]  # fmt: skip
HOP_NAMES = (b"x-a", b"keep-alive", b"proxy-connection", b"upgrade")


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_hop_by_hop_fields_of_requests_stay_on_their_hop(stage: Stage) -> None:
    """Row 46: hop-by-hop fields of requests do not pass the proxy."""
    app = stage.answers()
    client = stage.connect()
    got = client.ask(get(b"/", *HOPS))
    assert got.status == 200 and got.all(b"connection") == [b"close"]
    (seen,) = app.requests
    assert not [name for name, _ in seen.fields if name.lower() in HOP_NAMES]
    assert seen.all(b"te") == [b"trailers"] and seen.all(b"x-b") == [b"2"]
    assert [one.lower() for one in seen.all(b"connection")] in ([], [b"te"])


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_an_upgrade_takes_only_its_own_fields_along(stage: Stage) -> None:
    """Rows 46 and 41: an upgrade takes only its own fields along; what else Connection names stays on its hop."""
    app = stage.answers()
    client = stage.connect()
    client.ask(
        get(
            b"/",
            b"Connection: X-A, Upgrade, keep-alive",
            b"X-A: 1",
            b"Keep-Alive: 5",
            b"Proxy-Connection: x",
            b"Upgrade: foo",
        )
    )
    (seen,) = app.requests
    assert seen.all(b"upgrade") == [b"foo"]
    assert [one.lower() for one in seen.all(b"connection")] == [b"upgrade"]
    assert not [name for name, _ in seen.fields if name.lower() in (b"x-a", b"keep-alive", b"proxy-connection")]


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_hop_by_hop_fields_of_answers_stay_on_their_hop(stage: Stage) -> None:
    """Row 46: hop-by-hop fields of answers do not pass the proxy."""
    stage.answers(
        ok(
            b"ok",
            b"Connection: X-A",
            b"X-A: 1",
            b"Keep-Alive: timeout=5",
            b"Proxy-Connection: x",
            b"Upgrade: h2c",
            b"X-B: 2",
        )
    )
    client = stage.connect()
    for _ in range(2):
        got = client.ask(get())
        assert not [name for name, _ in got.fields if name.lower() in (*HOP_NAMES, b"connection")]
        assert got.all(b"x-b") == [b"2"]


@pytest.mark.parametrize(
    "option",
    [b"host", b"content-length", b"l5d-client-id", b"l5d-orig-proto", b"transfer-encoding"],
    ids=lambda one: f"row46-{one.decode()}",
)
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_client_cannot_take_from_us_what_is_ours(stage: Stage, option: bytes) -> None:
    app = stage.answers()
    client = stage.connect()
    for _ in range(2):
        assert client.ask(post(b"hello", b"Connection: " + option, b"l5d-client-id: forged")).status == 200
    for seen in app.requests:
        assert (seen.all(b"host"), seen.body) == ([b"app.ns"], b"hello")
        ids = seen.all(b"l5d-client-id")
        if stage.way in (PAIR, MTLS):
            assert ids == [b"web.ns.serviceaccount.identity.linkerd.cluster.local"]
        elif stage.way == IN:
            assert ids == []


FORBIDDEN = [
    (b"connection", b"close"), (b"connection", b"x-a"), (b"keep-alive", b"5"), (b"proxy-connection", b"x"), (b"transfer-encoding", b"chunked"),
    (b"upgrade", b"foo"), (b"te", b"gzip"), (b"te", b"trailers, deflate"), (b"Connection", b"close"),
]  # fmt: skip


@pytest.mark.parametrize("one", FORBIDDEN, ids=lambda one: f"row46-{one[0].decode()}-{one[1].decode()}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_on_http_2_only_te_trailers_is_allowed(stage: Stage, one: tuple[bytes, bytes]) -> None:
    app = Serving()
    stage.play(app)
    client = Http2(stage.connect())
    stream = client.finish(client.begin(request(b"/bad", one)))
    assert stream.reset == 1 or stream.status == 400
    assert client.ask(request(b"/good", (b"te", b"trailers"))).status == 200
    (seen,) = app.requests
    assert seen.get(b"te") == b"trailers"


# ---- row 47

TRAILERS = b"X-Sum: 9\r\nX-Twice: a\r\nX-Twice: b\r\n"
KEPT = [(b"x-sum", b"9"), (b"x-twice", b"a"), (b"x-twice", b"b")]
DROPPED = (
    b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\nHost: evil\r\nAuthorization: Basic x\r\nl5d-client-id: x\r\n"
    b"Set-Cookie: a=b\r\nContent-Type: text/html\r\nConnection: close\r\nTE: x\r\nTrailer: x\r\n"
)


def lowered(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in pairs]


def is_clean(message: Message) -> bool:
    return not any(name.lower() in (b"x-sum", b"x-twice") for name, _ in message.fields)


@pytest.mark.parametrize("body", [b"hello", b""], ids=["row47-body", "row47-empty"])
def test_trailers_pass_both_ways_and_never_become_headers(stage: Stage, body: bytes) -> None:
    sent = chunks(body, trailers=TRAILERS) if body else chunks(trailers=TRAILERS)
    app = stage.answers(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n" + sent)
    client = stage.connect()
    for _ in range(2):
        got = client.ask(
            get(b"/", b"Transfer-Encoding: chunked", b"Trailer: X-Sum", b"TE: trailers", method=b"POST") + sent
        )
        for one in (got, app.requests[-1]):
            assert (one.body, lowered(one.trailers)) == (body, KEPT)
            assert is_clean(one) and one.all(b"trailer") == [b"X-Sum"]


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_trailers_of_framing_routing_and_trust_are_dropped(stage: Stage) -> None:
    """Row 47: trailers about framing, routing and trust are dropped, and all others are kept."""
    sent = chunks(b"hello", trailers=DROPPED + TRAILERS)
    app = stage.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + sent)
    got = stage.connect().ask(get(b"/", b"Transfer-Encoding: chunked", method=b"POST") + sent)
    for one in (got, app.requests[-1]):
        assert (one.body, lowered(one.trailers)) == (b"hello", KEPT)


@pytest.mark.parametrize("lines", [[], [(b"content-length", b"5")]], ids=["row47-no-length", "row47-length"])
def test_trailers_over_http_2(stage: Stage, lines: Fields) -> None:
    app = Serving(lambda connection, stream: connection.answer(stream, b"hello", *lines, trailers=KEPT))
    stage.play(app)
    client = Http2(stage.connect())
    for _ in range(2):
        got = client.ask(request(b"/", *lines, (b"te", b"trailers"), method=b"POST"), b"hello", KEPT)
        for one in (got, app.requests[-1]):
            assert (bytes(one.body), one.trailers, one.reset) == (b"hello", KEPT, None)


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_trailers_of_trust_are_dropped_from_http_2_as_well(stage: Stage) -> None:
    """Row 47: trailers about trust are dropped from HTTP/2 too."""
    sent = [
        (b"authorization", b"Basic x"),
        *KEPT,
        (b"set-cookie", b"a=b"),
        (b"host", b"evil"),
        (b"l5d-client-id", b"x"),
    ]
    app = Serving(lambda connection, stream: connection.answer(stream, b"hello", trailers=sent))
    stage.play(app)
    got = Http2(stage.connect()).ask(request(method=b"POST"), b"hello", sent)
    assert got.trailers == app.requests[-1].trailers == KEPT


@pytest.mark.parametrize("lines", [[], [(b"content-length", b"5")]], ids=["row47-no-length", "row47-length"])
@pytest.mark.parametrize("stage", [IN], indirect=True)
def test_trailers_from_http_2_to_http_1_and_back(stage: Stage, lines: Fields) -> None:
    """Row 47: trailers between HTTP/2 and HTTP/1, as a peer's proxy carries them. HTTP/1 with a length has no place
    for a request's trailers: they are dropped, not merged into the head.
    """
    app = stage.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(b"world", trailers=TRAILERS))
    client = Http2(stage.connect_as_peer())
    for _ in range(2):
        head = request(b"/", (b"l5d-orig-proto", b"HTTP/1.1"), *lines, method=b"POST")
        got = client.ask(head, b"hello", KEPT)
        assert (bytes(got.body), got.trailers) == (b"world", KEPT)
        seen = app.requests[-1]
        assert seen.body == b"hello" and is_clean(seen)
        assert lowered(seen.trailers) == ([] if lines else KEPT)


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_101_that_nobody_asked_for_is_no_tunnel(stage: Stage) -> None:
    """Row 43: a 101 without a request for it does not open a tunnel."""
    stage.answers(SWITCHING + ok(b"smuggled"))
    client = stage.connect()
    assert client.ask(get()).status == 502
    assert b"smuggled" not in client.received
