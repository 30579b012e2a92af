"""The whole table of requests that must be refused, judged in memory: whole, byte by byte and cut at random."""

from __future__ import annotations

import pytest

from tests.http.bad_requests import CHUNKS, HEADS, head
from tests.kit.pair import Pair, serve
from tests.kit.playbook import cuts

GOOD = b"GET /good HTTP/1.1\r\nHost: app.ns\r\n\r\n"
ROUNDS = 5


@pytest.mark.parametrize("case", HEADS)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_a_bad_head_is_refused_and_never_reaches_the_app(case: str, is_first: bool) -> None:
    for name, cut in cuts(ROUNDS):
        pair = Pair()
        if not is_first:
            pair.server.feed(GOOD)
            assert len(serve(pair)) == 1
            assert pair.wire.take().startswith(b"HTTP/1.1 200 ")
        for part in cut(HEADS[case]):
            if not pair.wire.is_over:
                pair.server.feed(part)
        assert serve(pair) == [], name
        assert pair.wire.take().startswith(b"HTTP/1.1 400 "), name
        assert pair.wire.mark() == "<FIN>", name
        assert len(pair.wires) == (0 if is_first else 1), name


@pytest.mark.parametrize("case", CHUNKS)
def test_a_bad_chunk_is_refused_and_the_app_never_sees_the_end_of_its_body(case: str) -> None:
    for name, cut in cuts(ROUNDS):
        pair = Pair()
        pair.server.feed(head(b"Transfer-Encoding: chunked", start=b"POST /bad HTTP/1.1"))
        for part in cut(CHUNKS[case]):
            if not pair.wire.is_over:
                pair.server.feed(part)
        (app,) = pair.wires
        assert app.aborted is not None, name
        assert b"0\r\n\r\n" not in app.take().partition(b"\r\n\r\n")[2], name
        assert pair.wire.take().startswith(b"HTTP/1.1 400 "), name
        assert pair.wire.mark() == "<FIN>", name
