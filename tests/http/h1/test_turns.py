"""What one HTTP/1 connection does in one turn of the loop is bounded; the rest of a read waits and is processed in
order.
"""

from __future__ import annotations

from time import thread_time

import pytest

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h1.head import SHARE_SHIFT
from proxy.http.h1.server import H1Server
from proxy.http.head import RequestHead
from proxy.http.pool import Pool
from tests.http.h2.kit import Front, Sinks, ok
from tests.kit import Clock, ListWire
from tests.kit.attempts import ToPoolAgain

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"1\r\nx\r\n"


def served(answers: bool = True) -> tuple[H1Server, ListWire, Sinks]:
    wire, stage, clock = ListWire(), Sinks(answers), Clock()
    return H1Server(wire, stage, clock, Wheel(0.1, clock.now)), wire, stage


def test_pipelined_requests_beyond_the_share_wait_with_reading_paused() -> None:
    server, wire, stage = served()
    server.feed(GET * 200)
    assert len(stage.exchanges) == limits.TURN_HEADS and wire.is_paused
    assert wire.take().count(b"HTTP/1.1 200") == 200
    assert wire.turns == 3 and not wire.is_paused


def test_long_heads_take_more_of_a_share() -> None:
    server, wire, stage = served()
    head = GET[:-2] + b"a:\r\n" * 200 + b"\r\n"
    assert 3 << SHARE_SHIFT < len(head) < 4 << SHARE_SHIFT
    server.feed(head * 100)
    assert len(stage.exchanges) == limits.TURN_HEADS // 4 and wire.is_paused
    assert wire.take().count(b"HTTP/1.1 200") == 100


def test_the_end_of_a_client_comes_behind_what_it_said() -> None:
    server, wire, _ = served()
    server.feed(GET * 100)
    server.eof()
    assert not wire.has_ended
    assert wire.take().count(b"HTTP/1.1 200") == 100
    assert wire.has_ended


def test_chunks_beyond_the_share_wait() -> None:
    server, wire, stage = served(answers=False)
    server.feed(POST + CHUNK * 10_000 + b"0\r\n\r\n" + GET)
    sink = stage.sinks[0]
    assert len(sink.body) == limits.TURN_CHUNKS and wire.is_paused
    wire.give_turns()
    assert len(sink.body) == 10_000 and sink.has_ended and not wire.is_paused
    stage.exchanges[0].response_head(ok(0), True)
    wire.give_turns()
    assert len(stage.exchanges) == 2, "what came behind the body was kept"


def test_a_client_that_ends_within_chunks_that_wait() -> None:
    server, wire, stage = served(answers=False)
    server.feed(POST + CHUNK * 3000)
    server.eof()
    assert stage.sinks[0].reset_for is None
    wire.give_turns()
    assert len(stage.sinks[0].body) == 3000 and stage.sinks[0].reset_for is Reason.PEER_CLOSED


def test_an_early_answer_while_chunks_wait() -> None:
    server, wire, stage = served(answers=False)
    server.feed(POST + CHUNK * 3000 + b"0\r\n\r\n" + GET)
    stage.exchanges[0].response_head(ok(0), True)
    wire.give_turns()
    assert len(stage.exchanges) == 2 and not wire.is_paused


class Dialled:
    """An H1Client that has sent one request."""

    def __init__(self, method: bytes = b"GET") -> None:
        self.wire = ListWire()
        self.pool = Pool(lambda pool: H1Client(self.wire, pool))
        self.front = Front(RequestHead(method, b"http", b"svc", b"/x", [], 0))
        self.front.exchange.request_ended = True
        ToPoolAgain(self.pool).send(self.front.exchange)
        found = self.front.upstream
        assert isinstance(found, H1Client)
        self.client = found
        self.wire.take()


@pytest.mark.parametrize("has_end", [True, False])
def test_chunks_of_an_endpoint_beyond_the_share_wait(has_end: bool) -> None:
    dialled = Dialled()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    dialled.client.feed(head + CHUNK * 10_000 + (b"0\r\n\r\n" if has_end else b""))
    dialled.client.eof()
    front = dialled.front
    assert len(front.body) == limits.TURN_CHUNKS and dialled.wire.is_paused and front.reset_for is None
    dialled.wire.give_turns()
    assert len(front.body) == 10_000 and front.has_ended is has_end
    assert front.reset_for is (None if has_end else Reason.PEER_CLOSED)


def test_informational_responses_of_an_endpoint_beyond_the_share_wait() -> None:
    dialled = Dialled()
    dialled.client.feed(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000 + b"HTTP/1.1 204 No Content\r\n\r\n")
    assert len(dialled.front.informational) == limits.TURN_HEADS
    dialled.wire.give_turns()
    assert len(dialled.front.informational) == 1000 and dialled.front.status == 204
    assert not dialled.wire.is_paused and not dialled.wire.is_over


def test_long_informational_responses_take_more_of_a_share() -> None:
    dialled = Dialled()
    dialled.client.feed(b"HTTP/1.1 103 Early Hints\r\na: %b\r\n\r\n" % (b"x" * 800) * 50)
    assert len(dialled.front.informational) == limits.TURN_HEADS // 4
    for _ in range(3):
        dialled.wire.give_turns()
    assert len(dialled.front.informational) == 50


@pytest.mark.parametrize("fields", [b"", b"a: %b\r\n" % (b"x" * 1000)])
def test_informational_responses_without_end_are_one_response_too_long(fields: bytes) -> None:
    dialled = Dialled()
    for _ in range(100):
        dialled.client.feed(b"HTTP/1.1 103 Early Hints\r\n%b\r\n" % fields * 20)
        dialled.wire.give_turns()
    size = 34 + limits.INFORMATIONAL_BYTES + len(fields) if fields else limits.INFORMATIONAL_BYTES
    assert 0 <= len(dialled.front.informational) - limits.HEAD_BYTES // size <= 2
    assert dialled.front.status == 502 and dialled.wire.is_over


@pytest.mark.parametrize("line", [b"Connection: ", b"Upgrade: ", b"Transfer-Encoding: ", b"TE: ", b"Keep-Alive: "])
@pytest.mark.parametrize("is_response", [False, True])
def test_no_head_of_lists_costs_more_than_its_length(line: bytes, is_response: bool) -> None:
    """Each name is looked at once, in one field with all of them as in as many fields as there are names."""
    start = b"HTTP/1.1 101 Go\r\n" if is_response else b"GET / HTTP/1.1\r\nHost: a\r\n"
    names = b",".join(b"%04x" % number for number in range(12_000))
    one = b"".join(b"%05x:\r\n" % number for number in range(230)) + line + names + b"\r\n"
    many = b"".join(line + names[start : start + 250] + b"\r\n" for start in range(0, len(names) - 250, 250))
    for fields in (one, many):
        head = start + fields + b"\r\n"
        assert len(head) < limits.HEAD_BYTES
        began = thread_time()
        if is_response:
            dialled = Dialled()
            dialled.front.exchange.request.upgrade = b",".join(reversed(names.split(b",")))
            dialled.front.exchange.request.wants_tunnel = True
            dialled.client.feed(head)
        else:
            served()[0].feed(head)
        assert thread_time() - began < 0.1  # some milliseconds; it was seconds


def test_a_stage_gives_an_exchange_up_while_its_chunks_wait() -> None:
    dialled = Dialled()
    dialled.client.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNK * 3000)
    exchange: Exchange = dialled.front.exchange
    exchange.cancel(Reason.CANCELLED)
    dialled.wire.give_turns()
    assert len(dialled.front.body) == limits.TURN_CHUNKS and dialled.wire.is_over


@pytest.mark.parametrize("line", [b"a: b\r\n", b"a\n", b"x"])
@pytest.mark.parametrize("is_response", [False, True])
def test_an_octet_of_a_long_head_costs_as_little_as_one_of_a_short(line: bytes, is_response: bool) -> None:
    """Octet by octet, where nothing but the last can end it: what came before is not looked through again."""
    start = b"HTTP/1.1 200 OK\n" if is_response else b"GET / HTTP/1.1\nHost: a\n" + (b"x: " if line == b"x" else b"")
    head = start + line * (60_000 // len(line))
    dialled, (server, wire, _) = Dialled(), served()
    feed = dialled.client.feed if is_response else server.feed
    feed(head)
    began = thread_time()
    for _ in range(1000):
        feed(b"y")
        feed(b"\n" if line == b"a\n" else b"z")
    assert thread_time() - began < 0.1  # a hundredth of a second; it was half a second
    assert not wire.written and not dialled.front.status
