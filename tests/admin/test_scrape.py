"""The metrics page in pieces: other work gets its turns, a client that does not read costs nothing, and surplus
scrapes wait.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator

import pytest

from proxy.admin import AdminStage
from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http.h1.server import H1Server
from proxy.metrics import Registry
from tests.admin.kit import AdminServer
from tests.kit import Clock, ListWire

GET = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
LIVE = b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = b"0\r\n\r\n"


class Long(AdminServer):
    """A server with a page of as many pieces as the test sets; it counts those that were made."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.made = 0
        self.count = pieces
        self.scrapes._pieces = self._page  # type: ignore[misc]

    def _page(self) -> Iterator[bytes]:
        for number in range(self.count):
            self.made += 1
            end = b"# EOF\n" if number == self.count - 1 else b""
            yield b"x" * limits.PIECE_BYTES + b"\n" + end


def client(server: AdminServer) -> tuple[H1Server, ListWire]:
    wire = ListWire()
    return H1Server(wire, AdminStage(server.admin, True), Clock()), wire


def test_one_turn_makes_one_piece() -> None:
    server = Long(400)
    codec, wire = client(server)
    codec.feed(GET)
    assert server.made == 0, "nothing in the turn in which the request was read"
    other, other_wire = client(server)
    while server.steps.asked:
        before = server.made
        server.steps.asked.pop(0).step()
        assert server.made <= before + 1
        other.feed(LIVE)
        assert other_wire.take().endswith(b"live\n")
    assert server.made == 400 and len(server.scrapes) == 0
    got = wire.take()
    assert b"Transfer-Encoding: chunked" in got and got.endswith(LAST) and got.count(b"x" * limits.PIECE_BYTES) == 400


def test_a_client_that_does_not_read_gets_no_more_pieces_made() -> None:
    server = Long(400)
    codec, wire = client(server)
    codec.feed(GET)
    for _ in range(20):
        server.steps.asked.pop(0).step()
    codec.writable(False)
    server.steps.take_all()
    assert server.made == 20
    codec.writable(True)
    server.steps.take_all()
    assert server.made == 400 and wire.take().endswith(LAST)


def test_a_short_page_has_a_length_and_a_head_request_gets_only_the_head() -> None:
    server = AdminServer()
    status, fields, body = server.ask("GET /metrics")
    assert (status, fields["content-length"], body) == (200, "6", b"# EOF\n")
    status, fields, body = server.ask("HEAD /metrics")
    assert (status, fields["content-length"], body) == (200, "6", b"")
    long = Long(3)
    assert long.ask("HEAD /metrics")[1]["content-length"] == str(3 * limits.PIECE_BYTES + 9) and long.made == 3
    longer = Long(100)
    assert longer.ask("HEAD /metrics")[2] == b"" and longer.made < 10 and len(longer.scrapes) == 0


def test_pieces_are_zipped_as_one_stream() -> None:
    server = Noisy(5)
    codec, wire = client(server)
    codec.feed(GET.replace(b"\r\n\r\n", b"\r\naccept-encoding: gzip\r\n\r\n"))
    server.steps.take_all()
    data = unchunked(wire.take().partition(b"\r\n\r\n")[2])
    assert gzip.decompress(data) == server.page_bytes and len(data) > limits.WRITE_HIGH_BYTES


class Noisy(Long):
    """A server with a page that compression cannot shorten."""

    def __init__(self, pieces: int) -> None:
        super().__init__(pieces)
        dice = random.Random(1)
        self.parts = [dice.randbytes(limits.WRITE_HIGH_BYTES) for _ in range(pieces)] + [b"# EOF\n"]
        self.page_bytes = b"".join(self.parts)

    def _page(self) -> Iterator[bytes]:
        yield from self.parts


def unchunked(body: bytes) -> bytes:
    data = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        data += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return data


def test_a_client_that_leaves_ends_its_page() -> None:
    server = Long(400)
    codec, _ = client(server)
    codec.feed(GET)
    server.steps.asked.pop(0).step()
    codec.lost(Reason.CONNECTION_RESET)
    server.steps.take_all()
    assert server.made == 1 and len(server.scrapes) == 0


def test_those_that_do_not_read_give_way_to_those_that_do() -> None:
    server = Long(400)
    silent = [client(server) for _ in range(limits.SCRAPES)]
    for codec, _ in silent:
        codec.feed(GET)
    for _ in range(20 * len(silent)):
        server.steps.asked.pop(0).step()
    for codec, _ in silent:
        codec.writable(False)
    server.steps.take_all()
    assert server.made == 20 * limits.SCRAPES
    reader, wire = client(server)
    reader.feed(GET)
    server.steps.take_all()
    assert wire.take() == b"", "no place yet"
    server.clock.now += limits.SCRAPE_STALL_S
    server.scrapes.look_again()
    server.steps.take_all()
    assert wire.take().endswith(LAST)
    assert len(server.scrapes) == limits.SCRAPES - 1, "one of the others was cut off"


def test_too_many_are_refused() -> None:
    server = Long(400)
    codecs = [client(server) for _ in range(limits.SCRAPES + limits.WAITING_SCRAPES + 1)]
    for codec, _ in codecs:
        codec.feed(GET)
    assert [wire.take()[:12] for _, wire in codecs if wire.written] == [b"HTTP/1.1 503"]
    for codec, _ in codecs:
        codec.lost(Reason.PEER_CLOSED)
    assert len(server.scrapes) == 0


def test_a_page_that_cannot_be_made_midway_ends_its_own_answer() -> None:
    server = Long(3)

    def broken() -> Iterator[bytes]:
        yield b"x" * limits.WRITE_HIGH_BYTES
        raise ValueError("no such family")

    server.scrapes._pieces = broken  # type: ignore[misc]
    codec, wire = client(server)
    codec.feed(GET)
    server.steps.take_all()
    assert wire.aborted is not None and not wire.take().endswith(LAST)
    assert len(server.scrapes) == 0


@pytest.mark.parametrize("count", [10, 3000])
def test_pieces_of_a_registry_are_its_page(count: int) -> None:
    registry = Registry(Clock())
    for number in range(count):
        registry.counter("outbound_http_errors_total", (("error", f"e-{number}"),)).add()
    pieces = list(registry.pieces())
    assert max(map(len, pieces)) < limits.PIECE_BYTES + 1000
    assert (len(pieces) > 1) == (count > 1000)
    assert b"".join(pieces) == registry.render()
    assert pieces[-1].endswith(b"# EOF\n") and not any(one.endswith(b"# EOF\n") for one in pieces[:-1])
