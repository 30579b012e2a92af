"""A request head that has begun must end in time; otherwise its connection is ended."""

from __future__ import annotations

import pytest

from proxy.core import limits
from proxy.core.failure.faults import Faults
from proxy.core.loop.timers import Wheel
from proxy.http.h1.server import H1Server
from proxy.http.head import ResponseHead
from tests.kit import Clock, ListWire
from tests.kit.streams import FakeStage

HALF = b"GET / HTTP/1.1\r\nHost: a\r\nX-"
REST = b"B: c\r\n\r\n"


class Client:
    def __init__(self) -> None:
        self.clock = Clock()
        self.wheel = Wheel(0.1, self.clock.now)
        self.wire = ListWire()
        self.stage = FakeStage()
        self.faults = Faults()
        self.server = H1Server(self.wire, self.stage, self.clock, self.wheel, self.faults)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.wheel.advance(self.clock.now)


def test_half_a_head_is_answered_408_when_its_time_is_over() -> None:
    client = Client()
    client.server.feed(HALF)
    client.pass_time(limits.HEAD_S - 1)
    client.server.feed(b"more of it\r\nX-")
    assert client.wire.take() == b""
    client.pass_time(2)
    assert client.wire.take().startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert client.wire.has_ended and client.faults.counts == {"slow_opening": 1}


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ((b"raw bytes, no http at all\r\n",), b"400"),
        ((b"raw bytes, no ht", b"tp at all\r", b"\n"), b"400"),
        ((b"GET / HTTP/1.2\r\nHost: a\r\n",), b"505"),
        ((b"\x16\x03\x01\x02\x00\x01\x00",), b"400"),
    ],
)
def test_what_cannot_become_a_request_is_answered_at_once(pieces: tuple[bytes, ...], status: bytes) -> None:
    """A client of another protocol on a port of HTTP, such as one that speaks TLS, does not wait until a head's time is over."""
    client = Client()
    for piece in pieces:
        assert client.wire.take() == b""
        client.server.feed(piece)
    assert client.wire.take().startswith(b"HTTP/1.1 " + status) and client.wire.has_ended


def test_the_time_is_the_heads_and_not_the_connections() -> None:
    client = Client()
    for _ in range(4):
        client.server.feed(HALF)
        client.pass_time(limits.HEAD_S / 2)
        client.server.feed(REST)
        client.stage.exchanges[-1].response_head(ResponseHead(204, [], 0), True)
        client.pass_time(limits.HEAD_S * 2)
    assert client.wire.take().count(b"HTTP/1.1 204") == 4 and not client.wire.has_ended


def test_an_idle_connection_has_all_the_time_that_there_is() -> None:
    client = Client()
    client.pass_time(100 * limits.HEAD_S)
    client.server.feed(HALF + REST)
    assert len(client.stage.exchanges) == 1


def test_a_body_may_take_long() -> None:
    client = Client()
    client.server.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
    client.pass_time(10 * limits.HEAD_S)
    client.server.feed(b"cde")
    assert client.wire.take() == b"" and not client.wire.has_ended


@pytest.mark.parametrize("timeout_s", [1.0, 5.0])
def test_the_time_can_be_set(timeout_s: float) -> None:
    client = Client()
    client.server.head_timeout_s = timeout_s
    client.server.feed(HALF)
    client.pass_time(timeout_s / 2)
    assert not client.wire.has_ended
    client.pass_time(timeout_s)
    assert client.wire.has_ended
