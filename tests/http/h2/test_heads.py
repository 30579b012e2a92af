"""Request heads on our server: what RFC 9113 section 8 forbids and allows, and what an HTTP/1 app gets from each."""

from __future__ import annotations

import pytest

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http import orig_proto
from proxy.http.h1.head import write_request
from proxy.http.h2.frames import frame
from proxy.http.head import TUNNEL, UNKNOWN, ResponseHead
from proxy.http.headers import field
from tests.http.h2.kit import GET, POST, Client, bare, ok, raw, reset_codes

PROTOCOL = 1
CONNECT = [(b":method", b"CONNECT"), (b":authority", b"db:5432")]
WEBSOCKET = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), *GET[1:]]


def swapped(index: int, value: bytes) -> list[tuple[bytes, bytes]]:
    fields = list(GET)
    fields[index] = (fields[index][0], value)
    return fields


MALFORMED: dict[str, list[tuple[bytes, bytes]]] = {
    "no :method": GET[1:],
    "no :scheme": [GET[0], *GET[2:]],
    "no :path": GET[:3],
    "empty :path": swapped(3, b""),
    "empty :method": swapped(0, b""),
    "two :method": [GET[0], *GET],
    "two :scheme": [GET[1], *GET],
    "two :path": [GET[3], *GET],
    "two :authority": [GET[2], *GET],
    "unknown pseudo-header": [(b":test", b"ok"), *GET],
    "a response's pseudo-header": [(b":status", b"200"), *GET],
    "pseudo-header behind a field": [*GET[:3], (b"x", b"1"), GET[3]],
    ":protocol without CONNECT": [(b":protocol", b"websocket"), *GET],
    "space in :path": swapped(3, b"/ HTTP/1.1"),
    "line break in :path": swapped(3, b"/\r\nHost: evil"),
    ":path without a slash": swapped(3, b"x"),
    ":path of OPTIONS alone": swapped(3, b"*"),
    "smuggling :method": swapped(0, b"GET / HTTP/1.1\r\nX:"),
    "bad :scheme": swapped(1, b"ht tp"),
    "user information in :authority": swapped(2, b"user@svc"),
    "space in :authority": swapped(2, b"svc evil"),
    "upper-case name": [*GET, (b"X-Upper", b"1")],
    "empty name": [*GET, (b"", b"1")],
    "colon in a name": [*GET, (b"x:y", b"1")],
    "space in a name": [*GET, (b"x y", b"1")],
    "line break in a value": [*GET, (b"x", b"a\r\nX: y")],
    "NUL in a value": [*GET, (b"x", b"a\x00")],
    "space before a value": [*GET, (b"x", b" a")],
    "tab behind a value": [*GET, (b"x", b"a\t")],
    "connection": [*GET, (b"connection", b"keep-alive")],
    "keep-alive": [*GET, (b"keep-alive", b"5")],
    "proxy-connection": [*GET, (b"proxy-connection", b"x")],
    "transfer-encoding": [*GET, (b"transfer-encoding", b"chunked")],
    "upgrade": [*GET, (b"upgrade", b"x")],
    "te": [*GET, (b"te", b"trailers, deflate")],
    "two hosts": [*GET, (b"host", b"svc"), (b"host", b"svc")],
    "a bad host": [*GET[:2], GET[3], (b"host", b"a b")],
    "two lengths": [*GET, (b"content-length", b"0"), (b"content-length", b"1")],
    "a length and no body": [*GET, (b"content-length", b"5")],
    "a length that is no number": [*GET, (b"content-length", b"-1")],
    "CONNECT without :authority": CONNECT[:1],
    "CONNECT with :path": [*CONNECT, (b":path", b"/")],
    "extended CONNECT without :path": WEBSOCKET[:-1],
}


@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_requests(fields: list[tuple[bytes, bytes]]) -> None:
    client = Client(answers=True)
    for stream in (1, 3, 5):
        assert reset_codes(client.head(stream, fields)) == {stream: PROTOCOL}
    assert not client.stage.exchanges and client.wire.aborted is None
    assert client.head(7)[0].stream == 7


@pytest.mark.parametrize(
    "fields",
    [
        [*GET, (b"x", b"")],
        [*GET, (b"x", b"a\tb \xff")],
        swapped(0, b"BREW"),
        [(b":method", b"OPTIONS"), *GET[1:3], (b":path", b"*")],
        swapped(3, b"/a?x=%7C|{}\xc3\xa4"),
        swapped(1, b"https"),
        swapped(2, b"[::1]:80"),
        [*GET, (b"te", b"trailers")],
        [*GET, (b"te", b"Trailers")],
        [*GET, (b"host", b"SVC")],
        [*GET, (b"content-length", b"0")],
        [*GET[:2], GET[3]],
    ],
)
def test_well_formed_requests(fields: list[tuple[bytes, bytes]]) -> None:
    client = Client(answers=True)
    for stream in (1, 3, 5):
        assert not reset_codes(client.head(stream, fields))
    assert len(client.stage.exchanges) == 3


def test_authority_and_host_that_disagree_get_400() -> None:
    client = Client()
    got = client.head(1, [*GET, (b"host", b"other")])
    assert client.decoder.decode(got[0].payload)[0] == (":status", "400") and got[0].flags & 1
    assert not client.stage.exchanges
    client.head(3, [*GET, (b"host", b"other"), (orig_proto.NAME, b"HTTP/1.1; absolute-form")])
    assert client.stage.sinks[0].head.authority == b"svc", "the target counts, and was carried"


def test_host_stands_in_for_authority_and_authority_for_host() -> None:
    client = Client()
    client.head(1, [*GET[:2], GET[3], (b"host", b"named")])
    client.head(3, GET)
    client.head(5, [*GET[:2], GET[3]])
    first, second, third = [sink.head for sink in client.stage.sinks]
    assert first.authority == b"named" and first.has_host
    assert write_request(second).startswith(b"GET /x HTTP/1.1\r\nHost: svc\r\n")
    assert third.authority == b""


def test_cookie_crumbs_are_joined_for_http_1_and_kept_for_http_2() -> None:
    client = Client()
    client.head(1, [*GET, (b"cookie", b"a=1"), (b"x", b"y"), (b"cookie", b"b=2"), (b"cookie", b"c=3")])
    head = client.stage.sinks[0].head
    assert [one.value for one in head.fields] == [b"a=1", b"y", b"b=2", b"c=3"]
    assert head.has_crumbs
    assert write_request(head.with_one_cookie()).endswith(b"cookie: a=1; b=2; c=3\r\nx: y\r\n\r\n")
    client.head(3, [*GET, (b"cookie", b"a=1")])
    assert not client.stage.sinks[1].head.has_crumbs


def test_te_trailers_is_a_fact_of_the_head() -> None:
    client = Client()
    client.head(1, [*GET, (b"te", b"trailers")])
    assert client.stage.sinks[0].head.takes_trailers


def test_a_remembered_head_is_handed_out_again_as_it_is() -> None:
    client = Client()
    for stream in (1, 3, 5, 7, 9):
        client.head(stream, [*GET, (b"x", b"1")], end=stream != 9)
        head = client.stage.sinks[-1].head
        assert [one.name for one in head.fields] == [b"x"]
        assert head.body_size == UNKNOWN, "whether a body follows is the stream's to say"
    assert client.stage.sinks[-1].head is client.stage.sinks[-2].head


def test_a_head_that_is_too_long_to_be_remembered_keeps_no_forms_of_itself() -> None:
    client = Client()
    client.head(1)
    block = client.encoder.encode(GET)
    literal = b"\x00\x01a\x14" + b"v" * 20
    long = block + literal * 60
    assert len(long) > limits.REMEMBERED_TEXT_BYTES
    for number, data in enumerate((long, long, long, block + literal, block + literal)):
        client.server.feed(frame.header_frames(3 + 2 * number, data, True))
    kept = [one.head.renderings is not None for one in client.stage.sinks[-5:]]
    assert kept == [False, False, False, True, True]


# ---- tunnels


def test_connect_to_an_http_1_endpoint() -> None:
    client = Client()
    client.head(1, CONNECT, end=False)
    client.send(raw(0, 0, 1, b"too early"))
    sink, exchange = client.stage.sinks[0], client.stage.exchanges[0]
    assert write_request(sink.head) == b"CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n"
    assert not sink.body, "held until the tunnel is there"
    exchange.response_head(ResponseHead(200, [], TUNNEL), False)
    assert sink.body == b"too early"
    exchange.response_data(b"hello", False)
    assert [one.payload for one in client.take() if one.kind == 0] == [b"hello"]
    client.send(raw(0, 0, 1, b" and on"))
    exchange.response_data(b"bye", True)
    assert [(one.payload, one.flags) for one in client.take()] == [(b"bye", 1)]
    client.send(raw(0, 1, 1, b" and out"))
    assert sink.body == b"too early and on and out" and exchange.reason is Reason.COMPLETE
    assert not client.server.streams


def test_a_tunnel_that_the_client_ends_first() -> None:
    client = Client()
    client.head(1, CONNECT, end=False)
    exchange = client.stage.exchanges[0]
    exchange.response_head(ResponseHead(200, [], TUNNEL), False)
    client.take()
    client.send(raw(0, 1, 1))
    assert client.stage.sinks[0].has_ended and exchange.reason is None
    exchange.response_data(b"last", True)
    assert [(one.kind, one.flags) for one in client.take()] == [(0, 1)]
    assert exchange.reason is Reason.COMPLETE and not client.server.streams


def test_a_tunnel_that_is_refused() -> None:
    client = Client()
    client.head(1, CONNECT, end=False)
    client.send(raw(0, 0, 1, b"early"))
    exchange = client.stage.exchanges[0]
    exchange.response_head(ok(2), False)
    exchange.response_data(b"no", True)
    got = client.take()
    assert reset_codes(got) == {1: 0} and not client.stage.sinks[0].body
    assert exchange.reason is Reason.COMPLETE


def test_a_websocket_is_asked_of_an_http_1_endpoint_as_an_upgrade() -> None:
    client = Client()
    client.head(1, [*WEBSOCKET, (b"sec-websocket-version", b"13")], end=False)
    sent = write_request(client.stage.sinks[0].head)
    assert sent.startswith(b"GET /x HTTP/1.1\r\nHost: svc\r\nsec-websocket-version: 13\r\n")
    assert b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: " in sent
    answer = ResponseHead(
        101,
        [
            field(b"connection", b"Upgrade"),
            field(b"upgrade", b"websocket"),
            field(b"sec-websocket-accept", b"x"),
            field(b"sec-websocket-protocol", b"chat"),
        ],
        TUNNEL,
    )
    client.stage.exchanges[0].response_head(answer, False)
    fields = dict(client.decoder.decode(client.take()[0].payload, raw=True))
    assert fields.pop(b"date")
    assert fields == {b":status": b"200", b"sec-websocket-protocol": b"chat"}


# ---- answers


def test_an_early_answer_ends_the_request_politely_and_swallows_the_rest() -> None:
    client = Client()
    client.head(1, POST, end=False)
    client.stage.exchanges[0].response_head(ok(0), True)
    got = client.take()
    assert got[0].flags & 1 and reset_codes(got) == {1: 0}
    assert client.stage.sinks[0].reset_for is Reason.EARLY_RESPONSE
    assert not client.send(raw(0, 0, 1, bytes(16384)) * 4 + raw(0, 1, 1)), "credited half by half, never refused"


@pytest.mark.parametrize("code", [0, 1, 7, 11, 99])
def test_the_code_of_an_endpoint_reaches_the_client(code: int) -> None:
    client = Client()
    client.head(1)
    exchange = client.stage.exchanges[0]
    exchange.response_head(bare(), False)
    exchange.reset_code = code
    exchange.response_reset(Reason.PEER_REFUSED if code == 7 else Reason.PEER_RESET)
    assert reset_codes(client.take()) == {1: code}


def test_an_endpoint_that_was_lost_does_not_look_like_an_end() -> None:
    client = Client()
    client.head(1)
    exchange = client.stage.exchanges[0]
    exchange.response_head(bare(), False)
    exchange.response_reset(Reason.CONNECTION_RESET)
    assert reset_codes(client.take()) == {1: 8}


def test_a_date_is_added_where_none_is() -> None:
    client = Client(answers=True)
    got = client.decoder.decode(client.head(1)[0].payload)
    assert got.count(("date", "today")) == 1
    client = Client()
    client.head(1)
    client.stage.exchanges[0].response_informational(ResponseHead(103, [], 0))
    client.stage.exchanges[0].response_head(ResponseHead(200, [], 0), True)
    early, final = [client.decoder.decode(one.payload) for one in client.take()]
    assert [name for name, _ in early] == [":status"]
    assert [name for name, _ in final] == [":status", "date"]
