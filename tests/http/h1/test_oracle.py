"""h11 as the independent judge: what it can send, we carry; what we write, it can read; what it refuses, we do not
pass on as something else.
"""

from __future__ import annotations

import re
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.failure.reason import Reason
from tests.kit import undated
from tests.kit.examples import examples
from tests.kit.pair import Pair

NAMES = st.from_regex(re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,12}"), fullmatch=True).filter(
    lambda name: (
        name.lower()
        not in {
            b"host",
            b"content-length",
            b"transfer-encoding",
            b"connection",
            b"upgrade",
            b"te",
            b"keep-alive",
            b"expect",
            b"proxy-connection",
            b"date",
        }
    )
)
VALUES = st.from_regex(
    re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]{0,20}[\x21-\x7e\x80-\xff])?)?"), fullmatch=True
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=8)
BODY = st.lists(st.binary(min_size=1, max_size=200), max_size=4)
FRAMING = st.sampled_from(["none", "length", "chunked"])
TRAILERS = st.lists(st.tuples(st.just(b"x-trailer"), VALUES), max_size=2)
TARGETS = st.from_regex(re.compile(rb"/[\x21-\x7e]{0,30}"), fullmatch=True)
CUTS = st.lists(st.integers(0, 2000), max_size=6)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def framed(framing: str, body: list[bytes]) -> list[tuple[bytes, bytes]]:
    if framing == "length":
        return [(b"Content-Length", b"%d" % sum(map(len, body)))]
    return [(b"Transfer-Encoding", b"chunked")] if framing == "chunked" else []


def spoken(
    connection: h11.Connection, head: Any, framing: str, body: list[bytes], trailers: list[tuple[bytes, bytes]]
) -> bytes:
    data = connection.send(head) or b""
    if framing != "none":
        for part in body:
            data += connection.send(h11.Data(data=part)) or b""
    return data + (connection.send(h11.EndOfMessage(headers=trailers if framing == "chunked" else [])) or b"")


def heard(
    connection: h11.Connection, data: bytes, has_ended: bool = False
) -> tuple[Any, bytes, list[tuple[bytes, bytes]]]:
    """The head, the body and the trailers of one whole message."""
    connection.receive_data(data)
    if has_ended:
        connection.receive_data(b"")
    head, body = None, b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request | h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return head, body, sorted(event.headers)
        else:
            assert not isinstance(event, type(h11.NEED_DATA)) or head is None, event
            assert isinstance(event, h11.InformationalResponse), event


def raw(head: Any) -> list[tuple[bytes, bytes]]:
    return sorted((name.lower(), value) for name, value in head.headers.raw_items())


@examples(100)
@given(TARGETS, FIELDS, FRAMING, BODY, TRAILERS, FIELDS, FRAMING, BODY, TRAILERS, CUTS)
def test_what_h11_says_arrives_as_it_was_said(
    target: bytes,
    fields: list[tuple[bytes, bytes]],
    framing: str,
    body: list[bytes],
    trailers: list[tuple[bytes, bytes]],
    fields_back: list[tuple[bytes, bytes]],
    framing_back: str,
    body_back: list[bytes],
    trailers_back: list[tuple[bytes, bytes]],
    places: list[int],
) -> None:
    client, app = h11.Connection(h11.CLIENT), h11.Connection(h11.SERVER)
    head = h11.Request(method=b"POST", target=target, headers=[*fields, (b"Host", b"svc"), *framed(framing, body)])
    pair = Pair()
    for part in cut(spoken(client, head, framing, body, trailers), places):
        pair.server.feed(part)
    got, got_body, got_trailers = heard(app, pair.wires[0].take())
    assert (got.method, got.target, raw(got)) == (b"POST", target, raw(head))
    assert got_body == (b"".join(body) if framing != "none" else b"")
    assert got_trailers == (sorted(trailers) if framing == "chunked" else [])

    framing_back = "length" if framing_back == "none" else framing_back
    answer = h11.Response(status_code=200, reason=b"OK", headers=[*fields_back, *framed(framing_back, body_back)])
    for part in cut(spoken(app, answer, framing_back, body_back, trailers_back), places):
        pair.clients[0].feed(part)
    got, got_body, got_trailers = heard(client, undated(pair.wire.take()))
    assert (got.status_code, raw(got)) == (200, raw(answer))
    assert got_body == b"".join(body_back)
    assert got_trailers == (sorted(trailers_back) if framing_back == "chunked" else [])
    assert pair.stage.exchanges[0].reason is Reason.COMPLETE


PIECES = st.sampled_from(
    [
        b"GET", b"POST", b" ", b"/", b"*", b"http://a/", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"\r\n", b"\n", b"\r", b"Host: a", b"Host: b",
        b"Content-Length: 3", b"Content-Length: 4", b"Content-Length:", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"X: y", b" X: y",
        b"X : y", b":", b"\x00", b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"0\r\n", b"3;x=y\r\nabc\r\n", b"+3\r\nabc\r\n", b"Connection: close", b"\t", b"\xff",
    ]
)  # fmt: skip
GOOD = b"POST / HTTP/1.1\r\nHost: a\r\n"


def requests_by_h11(data: bytes) -> list[tuple[bytes, bytes, bytes]] | None:
    """The requests that h11 finds in these bytes; None if it refuses any of them."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    found: list[tuple[bytes, bytes, bytes]] = []
    method = target = body = b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                method, target, body = event.method, event.target, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append((method, target, body))
                if connection.our_state is h11.SEND_RESPONSE:
                    connection.send(h11.Response(status_code=200, headers=[(b"Content-Length", b"0")]))
                    connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:
                    return found
                connection.start_next_cycle()
            else:
                return found
    except h11.RemoteProtocolError:
        return None


def requests_by_us(data: bytes) -> list[tuple[bytes, bytes, bytes]] | None:
    """The requests that reach apps, as h11 reads them there; None if we refuse any."""
    pair = Pair()
    pair.server.feed(data)
    found: list[tuple[bytes, bytes, bytes]] = []
    index = 0
    while index < len(pair.wires):
        wire = pair.wires[index]
        seen = requests_by_h11(wire.take())
        assert seen is not None, "what we write must be readable"
        if seen:
            found += seen
            pair.clients[index].feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        if not wire.written:
            index += 1
    answers = pair.wire.take()
    return None if re.search(rb"HTTP/1\.[01] (400|414|431|501|505) ", answers) else found


@examples(300)
@given(st.lists(PIECES, max_size=14), st.booleans())
def test_no_request_is_read_in_two_ways(pieces: list[bytes], starts_well: bool) -> None:
    data = (GOOD if starts_well else b"") + b"".join(pieces)
    theirs, ours = requests_by_h11(data), requests_by_us(data)
    if theirs is not None and ours is not None:
        assert ours[: len(theirs)] == theirs[: len(ours)], data


RESPONSE_PIECES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204 X\r\n", b"HTTP/1.1 100 C\r\n\r\n", b"HTTP/1.0 200 OK\r\n", b"\r\n", b"\n", b"Content-Length: 3\r\n", b"Content-Length: 4\r\n",
        b"Transfer-Encoding: chunked\r\n", b"X: y\r\n", b" X: y\r\n", b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"\x00", b"HTTP/1.1 20 X\r\n", b"Connection: close\r\n",
    ]
)  # fmt: skip


@examples(300)
@given(st.lists(RESPONSE_PIECES, max_size=10), st.booleans(), CUTS)
def test_a_client_gets_a_whole_response_or_an_error_whatever_the_app_says(
    pieces: list[bytes], ends: bool, places: list[int]
) -> None:
    pair = Pair()
    pair.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    pair.wires[0].take()
    for part in cut(b"".join(pieces), places):
        pair.clients[0].feed(part)
    if ends:
        pair.clients[0].eof()
        pair.clients[0].lost(Reason.PEER_CLOSED)
    exchange = pair.stage.exchanges[0]
    written = pair.wire.take()
    assert exchange.reason is not None or not ends
    if exchange.reason is None or (
        pair.wire.aborted is not None and exchange.response is not None and not exchange.response_ended
    ):
        return
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=b"GET", target=b"/", headers=[(b"Host", b"a")]))
    client.send(h11.EndOfMessage())
    head, _, _ = heard(client, written, pair.wire.has_ended)
    assert head is not None and exchange.response is not None and head.status_code == exchange.response.status
    if exchange.reason is not Reason.COMPLETE:
        assert head.status_code == 502


@pytest.mark.parametrize("tail", [b"\x00", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\r\n"])
def test_what_follows_a_request_does_not_change_it(tail: bytes) -> None:
    pair = Pair()
    pair.server.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + tail)
    assert pair.wires[0].take() == b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
