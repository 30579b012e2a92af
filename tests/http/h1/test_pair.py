"""HTTP/1 to HTTP/1 on list wires: bodies, trailers, upgrades, resets, strictness. All input comes whole, byte by byte
and cut at random.
"""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from tests.kit import splits, undated
from tests.kit.pair import Pair

REQUEST = b"POST /a?b HTTP/1.1\r\nHost: svc:80\r\nX-Case: Kept\r\nContent-Length: 5\r\n\r\nhello"
SENT = REQUEST
RESPONSE = b"HTTP/1.1 200 OK\r\nDate: now\r\nX-Answer: 1\r\nContent-Length: 3\r\n\r\nyes"


@pytest.mark.parametrize("request_parts", list(splits(REQUEST)), ids=lambda parts: str(len(parts)))
def test_length_bodies_both_ways(request_parts: list[bytes]) -> None:
    pair = Pair()
    for part in request_parts:
        pair.server.feed(part)
    assert pair.wires[0].take() == SENT
    for parts in splits(RESPONSE):
        if parts != [RESPONSE]:
            pair.server.feed(REQUEST)
            assert pair.wires[0].take() == SENT
        for part in parts:
            pair.clients[0].feed(part)
        assert pair.wire.take() == RESPONSE
    assert len(pair.clients) == 1


CHUNKED = b"4\r\nwiki\r\n6;x=y\r\npedia \r\n0\r\nX-Sum: 9\r\n\r\n"


def dechunk(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        count = int(size.split(b";")[0], 16)
        if not count:
            return body, data
        body += data[:count]
        assert data[count : count + 2] == b"\r\n"
        data = data[count + 2 :]


@pytest.mark.parametrize("index", range(22))
def test_chunked_bodies_and_trailers(index: int) -> None:
    pair = Pair()
    request = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED
    for part in list(splits(request))[index]:
        pair.server.feed(part)
    head, _, body = pair.wires[0].take().partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert dechunk(body) == (b"wikipedia ", b"X-Sum: 9\r\n\r\n")
    response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED
    for part in list(splits(response))[index]:
        pair.clients[0].feed(part)
    head, _, body = pair.wire.take().partition(b"\r\n\r\n")
    assert dechunk(body) == (b"wikipedia ", b"X-Sum: 9\r\n\r\n")
    pair.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert len(pair.clients) == 1, "the connection was not reused"


def test_pipelined_requests_are_answered_in_order() -> None:
    pair = Pair()
    one = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"
    pair.server.feed(one % 1 + one % 2 + one % 3)
    for number in (1, 2, 3):
        assert pair.wires[0].take().startswith(b"GET /%d " % number)
        pair.clients[0].feed(RESPONSE)
        assert pair.wire.take() == RESPONSE


@pytest.mark.parametrize("index", range(20))
def test_upgrade_becomes_a_tunnel(index: int) -> None:
    pair = Pair()
    upgrade = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    pair.server.feed(upgrade + b"early")
    sent = pair.wires[0].take()
    assert b"Upgrade: websocket\r\n" in sent and b"early" not in sent
    answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n<-bytes"
    for part in list(splits(answer))[index]:
        pair.clients[0].feed(part)
    assert pair.wires[0].take() == b"early"
    assert undated(pair.wire.take()) == answer
    pair.server.feed(b"->bytes")
    assert pair.wires[0].take() == b"->bytes"
    pair.clients[0].eof()
    assert pair.wire.has_ended and not pair.wires[0].has_ended
    pair.server.feed(b"->more")
    assert pair.wires[0].take() == b"->more"
    pair.server.eof()
    assert pair.wires[0].has_ended
    exchange = pair.stage.exchanges[0]
    assert exchange.reason is Reason.COMPLETE and exchange.response is not None and exchange.response.status == 101


def test_refused_upgrade_goes_on_as_http() -> None:
    pair = Pair()
    pair.server.feed(
        b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
    )
    pair.wires[0].take()
    pair.clients[0].feed(RESPONSE)
    assert pair.wire.take() == RESPONSE
    assert pair.wires[0].take().startswith(b"GET /2 ")


BAD_HEADS = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: a\nb\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n folded\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
    b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 300 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 70000,
]


@pytest.mark.parametrize("head", BAD_HEADS, ids=range(len(BAD_HEADS)))
def test_bad_heads_are_refused_and_reach_nobody(head: bytes) -> None:
    for parts in ([head], [head[:30], head[30:]], [head]):
        pair = Pair()
        for part in parts:
            pair.server.feed(part)
        answer = pair.wire.take()
        assert answer[9:12] in (b"400", b"431", b"505"), answer
        assert pair.wire.has_ended and not pair.wires


def test_a_bad_chunk_is_a_400_and_resets_the_endpoint() -> None:
    for bad in (b"g\r\n", b"5\r\nhelloXX", b"-1\r\n", b"0x5\r\n", b"5" * 5000, b"5\nhello", b" 5\r\n", b"5\r\nhello\n"):
        pair = Pair()
        pair.server.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + bad + b"\r\n")
        assert pair.wire.take().startswith(b"HTTP/1.1 400 "), bad
        assert pair.wire.has_ended and pair.wires[0].aborted is Reason.BAD_REQUEST


def test_endpoint_that_breaks_the_protocol_is_a_502_and_is_not_reused() -> None:
    for bad in (
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"nonsense\r\n\r\n",
    ):
        pair = Pair()
        pair.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        pair.clients[0].feed(bad)
        assert pair.wire.take().startswith(b"HTTP/1.1 502 ")
        assert pair.wires[0].aborted is Reason.PROTOCOL_ERROR
        pair.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert len(pair.clients) == 2


def test_surplus_after_a_response_never_answers_the_next_request() -> None:
    pair = Pair()
    pair.server.feed(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
    pair.clients[0].feed(RESPONSE + RESPONSE)
    assert pair.wire.take() == RESPONSE
    assert pair.wires[0].aborted is not None and len(pair.clients) == 2


def test_lost_endpoint_mid_body_aborts_the_client() -> None:
    pair = Pair()
    pair.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    pair.clients[0].feed(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    pair.clients[0].lost(Reason.PEER_CLOSED)
    assert pair.wire.aborted is Reason.PEER_CLOSED


def test_lost_client_resets_the_endpoint() -> None:
    pair = Pair()
    pair.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    pair.server.lost(Reason.PEER_CLOSED)
    assert pair.wires[0].aborted is Reason.PEER_CLOSED


def test_until_close_body_becomes_chunked() -> None:
    pair = Pair()
    pair.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    pair.clients[0].feed(b"HTTP/1.1 200 OK\r\n\r\nabc")
    pair.clients[0].eof()
    head, _, body = pair.wire.take().partition(b"\r\n\r\n")
    assert b"chunked" in head and dechunk(body) == (b"abc", b"\r\n")


def test_no_response_in_time_is_a_504() -> None:
    pair = Pair()
    attempts = pair.stage.origin.attempts = []
    pair.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    (attempt,) = attempts
    attempt.answer_within(pair.wheel, pair.wheel.ticks(1.0))
    pair.advance(0.9)
    assert not pair.wire.written
    pair.advance(0.4)
    assert pair.wire.take().startswith(b"HTTP/1.1 504 ")
    assert pair.wires[0].aborted is Reason.RESPONSE_TIMEOUT


def test_backpressure_both_ways() -> None:
    pair = Pair()
    pair.server.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
    pair.clients[0].writable(False)
    assert pair.wire.is_paused
    pair.clients[0].writable(True)
    assert not pair.wire.is_paused
    pair.clients[0].feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
    pair.server.writable(False)
    assert pair.wires[0].is_paused
    pair.server.writable(True)
    assert not pair.wires[0].is_paused


def test_early_response_drains_the_request() -> None:
    pair = Pair()
    pair.server.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
    pair.clients[0].feed(RESPONSE)
    assert pair.wire.take() == RESPONSE
    assert pair.wires[0].aborted is Reason.EARLY_RESPONSE
    pair.server.feed(b"defghiGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert pair.wires[1].take().startswith(b"GET /2 ")
