"""A flood of texts that occur once leaves no more behind than the budget allows, whatever they are and however they
came.
"""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from proxy.core import limits
from proxy.core.budget import REMEMBERED
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.h2 import client as http2_client
from proxy.http.h2.hpack.decoder import Decoder
from proxy.http.h2.hpack.encoder import Encoder
from proxy.http.headers import Field, field, field_of_literal, string_literal
from tests.http.h2 import kit as h2kit
from tests.kit.pair import Pair, serve

MIB = 1 << 20
FLOOD_BYTES = 6 * MIB


class Growth:
    kept_bytes = 0


@contextmanager
def growth() -> Iterator[Growth]:
    """How much larger the interpreter's heap is at the end than at the beginning."""
    found = Growth()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield found
        gc.collect()
        found.kept_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def text(number: int, size: int) -> bytes:
    return (b"%d-" % number) + b"x" * (size - 8)


HTTP1: dict[str, Callable[[int, int], bytes]] = {
    "field": lambda number, size: b"GET / HTTP/1.1\r\nHost: a\r\nX-Once: %b\r\n\r\n" % text(number, size),
    "name": lambda number, size: b"GET / HTTP/1.1\r\nHost: a\r\nX-%b: 1\r\n\r\n" % text(number, size),
    "path": lambda number, size: b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % text(number, size),
    "block": lambda number, size: b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X-%d: 1\r\nX-%d: 1\r\n\r\n" % (number, number),
}


@pytest.mark.parametrize("size", [1000, 60_000])
@pytest.mark.parametrize("kind", HTTP1)
def test_requests_over_http1(kind: str, size: int) -> None:
    pair = Pair()
    with growth() as found:
        for number in range(FLOOD_BYTES // size):
            pair.server.feed(HTTP1[kind](number, size))
            serve(pair)
            pair.wire.take()
            pair.stage.exchanges.clear()
    assert found.kept_bytes < 2.5 * MIB
    assert REMEMBERED.held_bytes <= limits.REMEMBERED_BYTES


@pytest.mark.parametrize("size", [1000, 60_000])
def test_requests_over_http2(size: int) -> None:
    """Fields, paths and authorities, as they come in and as the next connection sends them."""
    decoder, encoder = Decoder(), Encoder()
    with growth() as found:
        for number in range(FLOOD_BYTES // size):
            once = text(number, size)
            block = b"\x00" + string_literal(b"x-once") + string_literal(once)
            block += b"\x40" + string_literal(b"x-indexed") + string_literal(once)
            encoder.encode(tuple(decoder.decode(block)))
            http2_client._pseudo(http2_client._paths, b":path", b"/" + once)
            http2_client._pseudo(http2_client._authorities, b":authority", once)
    encoder.close()
    decoder.close()
    assert found.kept_bytes < 4 * MIB
    assert REMEMBERED.held_bytes <= limits.REMEMBERED_BYTES


def test_many_connections_remember_no_more_than_one_budget() -> None:
    dice = random.Random(1)
    connections = [(Decoder(), Encoder()) for _ in range(300)]
    with growth() as found:
        for _ in range(25):
            for decoder, encoder in connections:
                literal = string_literal(b"%0400d" % dice.getrandbits(60))
                one = field_of_literal(b"x-once", literal)
                fields: tuple[Field, ...] = (one, field(b"x-always", b"1"))
                encoder.encode(fields)
                encoder.encode(fields)
                decoder.decode(b"\x00" + string_literal(b"x-once") + literal)
                decoder.keep_head(literal, object())
            assert REMEMBERED.held_bytes <= limits.REMEMBERED_BYTES
        # The tables of HPACK itself belong to the protocol: 4 KiB of fields for each, on which the peer relies.
        assert all(encoder._size <= 4096 for _, encoder in connections)
    assert found.kept_bytes < 300 * 12_000 + 2 * limits.REMEMBERED_BYTES
    for decoder, encoder in connections:
        decoder.close()
        encoder.close()


def test_a_connection_that_is_over_has_given_everything_back() -> None:
    before = REMEMBERED.by_table.get("http2_decoded", 0), REMEMBERED.by_table.get("http2_encoded", 0)
    peer = h2kit.Client(answers=True)
    for number in range(4):
        peer.head(2 * number + 1)
    held = REMEMBERED.by_table["http2_decoded"], REMEMBERED.by_table["http2_encoded"]
    assert held[0] > before[0] and held[1] > before[1]
    peer.server.lost(Reason.PEER_CLOSED)
    assert (REMEMBERED.by_table["http2_decoded"], REMEMBERED.by_table["http2_encoded"]) == before


def test_a_long_field_that_repeats_still_passes_and_leaves_the_tables_in_step() -> None:
    encoder, decoder = Encoder(), Decoder()
    long = field(b"x-long", b"y" * 2000)
    for _ in range(5):
        again = decoder.decode(encoder.encode((long, field(b"a", b"b"))))
        assert [(one.name, one.value) for one in again] == [(b"x-long", b"y" * 2000), (b"a", b"b")]
    assert long not in encoder._seen and long not in encoder._octets


def test_forgetting_leaves_the_tables_in_step() -> None:
    encoder, decoder = Encoder(), Decoder()
    dice = random.Random(2)
    fields = [field(b"n-%d" % number, b"v" * dice.randrange(200)) for number in range(60)]
    for _ in range(2000):
        chosen = tuple(dice.sample(fields, 5))
        if dice.random() < 0.1:
            encoder.forget()
        if dice.random() < 0.1:
            decoder.forget()
        found = decoder.decode(encoder.encode(chosen))
        assert [(one.name, one.value) for one in found] == [(one.name, one.value) for one in chosen]
    with pytest.raises(ProtocolError):
        decoder.decode(b"\xff\x80\x80\x80")
