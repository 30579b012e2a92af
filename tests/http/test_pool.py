"""Pools: which request gets which connection, how long one stays idle, and which connections must not be used again."""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.pool import Pool
from tests.kit import ListWire
from tests.kit.pair import Pair, serve
from tests.kit.streams import FakeServer, request_head


def accepted(*requests: bytes) -> list[int]:
    """How many connections the app had accepted after each request."""
    pair = Pair()
    counts = []
    for request in requests:
        pair.server.feed(request)
        serve(pair)
        counts.append(len(pair.wires))
    return counts


def get(host: bytes, body: bytes = b"") -> bytes:
    return b"POST / HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\n\r\n%b" % (host, len(body), body)


@pytest.mark.parametrize("body", [b"", b"hello"])
def test_a_connection_is_kept_for_its_host(body: bytes) -> None:
    hosts = (b"foo.bar", b"foo.bar", b"bar.baz", b"bar.baz", b"quuuux.com")
    assert accepted(*(get(host, body) for host in hosts)) == [1, 1, 2, 2, 3]


def test_requests_without_a_host_share_no_connection() -> None:
    assert accepted(get(b""), get(b""), get(b"foo.bar"), get(b"")) == [1, 2, 3, 4]


def test_the_forms_of_a_target_share_no_connection() -> None:
    absolute = b"GET http://foo.bar/ HTTP/1.1\r\nHost: foo.bar\r\n\r\n"
    assert accepted(get(b"foo.bar"), absolute, absolute, get(b"foo.bar")) == [1, 2, 2, 2]


class Dials:
    """An H1Pool with exchanges that end when the test ends them."""

    def __init__(self, max_idle: int = 1 << 30) -> None:
        self.wheel = Wheel(0.1, 0.0)
        self.pool = H1Pool(self.dial, self.wheel, 3.0, max_idle)
        self.wires: list[ListWire] = []
        self.clients: list[H1Client] = []

    def dial(self, pool: Pool) -> H1Client:
        self.wires.append(ListWire())
        self.clients.append(H1Client(self.wires[-1], pool))
        return self.clients[-1]

    def open(self) -> Exchange:
        exchange = Exchange(FakeServer(), request_head(), 0.0)
        exchange.request_ended = True
        self.pool.open(Attempt(exchange, exchange.request))
        return exchange

    def answer(self, index: int) -> None:
        self.clients[index].feed(b"HTTP/1.1 204 x\r\n\r\n")


def test_idle_connections_are_closed_in_time_and_not_before() -> None:
    dials = Dials()
    dials.open()
    dials.open()
    dials.answer(0)
    dials.wheel.advance(2.0)
    dials.answer(1)
    dials.wheel.advance(2.9)
    assert not dials.wires[0].is_over
    dials.wheel.advance(3.5)
    assert dials.wires[0].is_over and not dials.wires[1].is_over and len(dials.pool) == 1
    dials.wheel.advance(5.5)
    assert dials.wires[1].is_over and not len(dials.pool) and not dials.pool._groups


def test_a_connection_in_use_is_not_swept() -> None:
    dials = Dials()
    dials.open()
    dials.answer(0)
    dials.wheel.advance(2.0)
    dials.open()
    dials.wheel.advance(10.0)
    assert len(dials.clients) == 1 and not dials.wires[0].is_over


def test_the_latest_used_is_used_first() -> None:
    dials = Dials()
    for _ in range(3):
        dials.open()
    for index in (1, 2, 0):
        dials.answer(index)
    dials.open()
    assert b"".join(dials.wires[0].written).count(b"GET") == 2


def test_no_more_than_so_many_stay_idle() -> None:
    dials = Dials(max_idle=1)
    dials.open()
    dials.open()
    dials.answer(0)
    dials.answer(1)
    assert len(dials.pool) == 1 and dials.wires[1].is_over and not dials.wires[0].is_over


def test_closing_ends_the_idle_now_and_the_busy_after_their_answer() -> None:
    dials = Dials()
    told = []
    dials.pool.on_empty = lambda: told.append(True)
    dials.open()
    dials.open()
    dials.answer(0)
    dials.pool.close(Reason.SHUTDOWN)
    assert dials.wires[0].is_over and not dials.wires[1].is_over and not told
    dials.answer(1)
    assert dials.wires[1].is_over and told == [True]


def test_an_exchange_that_ended_while_it_waited_dials_nothing() -> None:
    for dials in (Dials(), Dials()):
        exchange = Exchange(FakeServer(), request_head(), 0.0)
        exchange.request_reset(Reason.PEER_CLOSED)
        dials.pool.open(Attempt(exchange, exchange.request))
        assert not dials.clients


def test_a_used_connection_that_is_lost_leaves_no_trace() -> None:
    dials = Dials()
    dials.open()
    dials.answer(0)
    dials.clients[0].eof()
    dials.clients[0].lost(Reason.PEER_CLOSED)
    assert not len(dials.pool) and not dials.pool._groups and not dials.pool._idle
