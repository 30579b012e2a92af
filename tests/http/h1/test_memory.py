"""What HTTP/1 holds in memory: for an idle connection, and for a body on its way to a slow reader."""

from __future__ import annotations

import gc
import tracemalloc

from tests.kit.pair import Pair, serve

IDLE_BYTES = 4864
"""The Python heap of one accepted and one dialled connection: 4004 octets interpreted, 4606 to 4637 compiled. A good third of it is
the kit's wires, wheel and pool; compiled objects are larger than interpreted ones. The budget for a real connection is 8 KiB.
"""


def _idle(count: int) -> list[Pair]:
    """This many connections, each of which has served one request that differs from all others."""
    pairs = []
    for number in range(count):
        pair = Pair()
        pair.server.feed(b"GET / HTTP/1.1\r\nHost: svc\r\nCookie: %d\r\n\r\n" % number)
        serve(pair, {b"/": b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"z" * 2000})
        pair.wire.take()
        pair.stage.exchanges.clear()
        pairs.append(pair)
    return pairs


def test_an_idle_connection_is_small() -> None:
    count = 300
    # What is remembered of these requests does not belong to a connection, and its size depends on what ran before. The
    # second time it is there already.
    _idle(count)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        pairs = _idle(count)
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / len(pairs)
    finally:
        tracemalloc.stop()
    assert each < IDLE_BYTES, f"{each:.0f} octets"


def test_a_body_is_not_kept_while_it_passes() -> None:
    pair = Pair()
    pair.server.feed(b"POST / HTTP/1.1\r\nHost: svc\r\nTransfer-Encoding: chunked\r\n\r\n")
    part = b"10000\r\n" + b"z" * 65536 + b"\r\n"
    tracemalloc.start()
    try:
        for _ in range(200):
            pair.server.feed(part)
            pair.wires[0].take()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20, f"{peak} octets for a body of {200 * 65536}"
