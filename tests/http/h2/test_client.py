"""Our client against servers that break the rules: which fault each is, and what happens to each answer."""

from __future__ import annotations

import pytest

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http import orig_proto
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.codes import text_of
from proxy.http.h2.hpack.decoder import Decoder
from proxy.http.head import HTTP_1_0, HTTP_1_1, HTTP_2, RequestHead
from proxy.http.headers import field
from tests.http.h2.kit import OK, Server, goaway_code, raw, reset_codes

PROTOCOL = 1


def test_what_the_client_says_first() -> None:
    server = Server(opens=False)
    settings = server.client.settings.opening(True)
    assert settings == frame.settings([(2, 0), (4, 65535), (6, 65536)]) + frame.window_update(0, (1 << 20) - 65535)


BAD_HEADS: dict[str, list[tuple[bytes, bytes]]] = {
    "no status": [(b"x", b"1")],
    "two statuses": [(b":status", b"200"), (b":status", b"200")],
    "a status of two digits": [(b":status", b"20")],
    "a status below 100": [(b":status", b"099")],
    "a request's pseudo-header": [(b":path", b"/"), *OK],
    "a pseudo-header behind a field": [(b"x", b"1"), *OK],
    "connection": [*OK, (b"connection", b"close")],
    "transfer-encoding": [*OK, (b"transfer-encoding", b"chunked")],
    "upper case": [*OK, (b"X-Up", b"1")],
    "two lengths": [*OK, (b"content-length", b"1"), (b"content-length", b"2")],
    "a length that is no number": [*OK, (b"content-length", b"+1")],
    "101": [(b":status", b"101")],
    "a line break": [*OK, (b"x", b"a\r\nb")],
    "a field too many": [*OK, *[(b"x-%d" % n, b"1") for n in range(256)]],
}


@pytest.mark.parametrize("fields", BAD_HEADS.values(), ids=BAD_HEADS.keys())
def test_bad_heads_reset_their_stream(fields: list[tuple[bytes, bytes]]) -> None:
    server = Server()
    front = server.request()
    other = server.request()
    server.take()
    assert set(reset_codes(server.head(1, fields, end=False))) == {1}
    assert front.status in (502, 431)
    server.head(3)
    assert other.status == 200, "the table is in step"


def test_one_length_said_twice_counts_once() -> None:
    """A response with the same content-length twice is accepted, because Linkerd's inbound proxy passes both on when
    an app sends both (RFC 9110 section 8.6).
    """
    server = Server()
    front = server.request()
    server.take()
    server.head(1, [*OK, (b"content-length", b"2"), (b"content-length", b"2")], end=False)
    server.send(raw(0, 1, 1, b"ok"))
    assert front.status == 200
    head = front.exchange.response
    assert head is not None
    assert [one.value for one in head.fields if one.name == b"content-length"] == [b"2"]


def test_bodies_that_do_not_fit_their_length() -> None:
    server = Server()
    front = server.request()
    server.take()
    server.head(1, [*OK, (b"content-length", b"3")], end=False)
    assert reset_codes(server.send(raw(0, 1, 1, b"four"))) == {1: PROTOCOL}
    assert front.reset_for is Reason.PROTOCOL_ERROR and not front.body
    front = server.request()
    server.take()
    assert reset_codes(server.head(3, [*OK, (b"content-length", b"3")])) == {3: PROTOCOL}
    assert front.status == 502


def test_data_before_a_head() -> None:
    for data, codes in ((raw(0, 0, 1, b"x"), {1: PROTOCOL}), (raw(0, 1, 1), {})):
        server = Server()
        front = server.request()
        server.take()
        assert reset_codes(server.send(data)) == codes
        assert front.status == 502 and not server.client.streams


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", b"200"), (b"GET", b"204"), (b"GET", b"304")])
def test_answers_without_a_body_keep_their_length(method: bytes, status: bytes) -> None:
    fields = [(b":status", status), (b"content-length", b"55")]
    server = Server()
    front = server.request(method)
    server.take()
    assert not server.head(1, fields)
    assert front.has_ended and front.head.fields[0].value == b"55"
    front = server.request(method)
    server.take()
    server.head(3, fields, end=False)
    assert not server.send(raw(0, 1, 3))
    assert front.has_ended
    front = server.request(method)
    server.take()
    server.head(5, fields, end=False)
    assert reset_codes(server.send(raw(0, 1, 5, b"x"))) == {5: PROTOCOL}


def test_informational_answers_in_order() -> None:
    server = Server()
    front = server.request()
    server.take()
    for status in (b"100", b"103", b"103"):
        assert not server.head(1, [(b":status", status)], end=False)
    server.head(1)
    assert (front.informational, front.status) == ([100, 103, 103], 200)
    front = server.request()
    server.take()
    assert reset_codes(server.head(3, [(b":status", b"103")])) == {3: PROTOCOL}


def test_trailers_only_and_trailers_with_data_between() -> None:
    server = Server()
    front = server.request()
    server.head(1, OK, end=False)
    server.head(1, [(b"grpc-status", b"0")])
    assert front.trailers is not None and front.exchange.reason is Reason.COMPLETE
    front = server.request()
    server.take()
    server.head(3, OK, end=False)
    assert reset_codes(server.head(3, [(b"x", b"1")], end=False)) == {3: PROTOCOL}
    assert front.reset_for is Reason.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "bad",
    [
        raw(1, 5, 9, b"\x88"),
        raw(1, 5, 2, b"\x88"),
        raw(0, 1, 9, b"x"),
        raw(5, 4, 1, bytes(5)),
        frame.settings([(2, 1)]),
        frame.rst_stream(9, 0),
        raw(1, 5, 1, b"\x80"),
        frame.window_update(0, 0),
    ],
)
def test_faults_of_the_connection(bad: bytes) -> None:
    server = Server()
    front = server.request()
    server.take()
    assert goaway_code(server.send(bad)) in (1, 9)
    assert front.status == 502 and not len(server.pool)


@pytest.mark.parametrize("code", [0, 1, 2, 7, 8, 11, 13, 99])
def test_reset_codes_travel(code: int) -> None:
    server = Server()
    front = server.request()
    server.send(frame.rst_stream(1, code))
    assert front.exchange.reset_code == code
    assert front.exchange.reason is (Reason.PEER_REFUSED if code == 7 else Reason.PEER_RESET)
    assert text_of(code)


def test_frames_of_streams_that_we_reset_are_ignored() -> None:
    server = Server()
    front = server.request()
    front.exchange.request_reset(Reason.PEER_RESET)
    assert reset_codes(server.take()) == {1: 8}
    assert not server.head(1, end=False)
    assert not server.send(raw(0, 0, 1, b"x") + frame.rst_stream(1, 0) + frame.window_update(1, 5))
    front = server.request()
    server.head(3)
    assert front.status == 200


def test_the_request_is_written_as_http_2_wants_it() -> None:
    server = Server()
    head = RequestHead(b"GET", b"http", b"svc", b"/x", [field(b"x", b"1")], 0)
    head.takes_trailers = True
    server.open(head)
    block = server.take()[0].payload
    assert server.decoder.decode(block, raw=True) == [
        (b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"svc"), (b":path", b"/x"), (b"x", b"1"),
        (b"te", b"trailers"),
    ]  # fmt: skip
    server.open(RequestHead(b"GET", b"http", b"", b"/x", [], 0))
    names = [name for name, _ in server.decoder.decode(server.take()[0].payload, raw=True)]
    assert names == [b":method", b":scheme", b":path"], "no authority is made up"


def test_sensitive_fields_stay_so() -> None:
    server = Server()
    fields = Decoder().decode(b"\x10\x01k\x06secret\x1f\x08\x05basic")
    for _ in range(3):
        server.open(RequestHead(b"GET", b"http", b"svc", b"/x", list(fields), 0))
        block = server.take()[-1].payload
        assert b"\x10\x01k\x06secret" in block and b"\x1f\x08\x05basic" in block


# ---- tunnels


def test_connect() -> None:
    server = Server()
    head = RequestHead(b"CONNECT", b"http", b"db:5432", b"", [], 0)
    head.wants_tunnel = True
    front = server.open(head, end=False)
    got = server.take()
    assert server.decoder.decode(got[0].payload, raw=True) == [(b":method", b"CONNECT"), (b":authority", b"db:5432")]
    assert not got[0].flags & 1
    server.head(1, [(b":status", b"200")], end=False)
    front.exchange.request_data(b"ping", False)
    assert server.take()[0].payload == b"ping"
    server.send(raw(0, 1, 1, b"pong"))
    assert (front.body, front.has_ended) == (b"pong", True)
    assert not front.exchange.reason, "the other way is open"
    front.exchange.request_data(b"bye", True)
    assert server.take()[0].payload == b"bye" and front.exchange.reason is Reason.COMPLETE
    assert not server.client.streams


def extended() -> RequestHead:
    head = RequestHead(b"GET", b"http", b"svc", b"/chat", [field(b"sec-websocket-key", b"abc")], 0)
    head.wants_tunnel = True
    head.upgrade = b"websocket"
    head.version = HTTP_2
    return head


@pytest.mark.parametrize("is_late", [False, True])
def test_extended_connect(is_late: bool) -> None:
    server = Server(opens=False)
    settings = frame.settings([(8, 1)])
    if not is_late:
        server.send(settings)
    server.open(extended(), end=False)
    got = server.send(settings) if is_late else server.take()
    block = next(one for one in got if one.kind == frame.HEADERS).payload
    assert server.decoder.decode(block, raw=True) == [
        (b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"http"), (b":authority", b"svc"),
        (b":path", b"/chat"),
    ]  # fmt: skip


@pytest.mark.parametrize("is_late", [False, True])
def test_extended_connect_to_a_peer_that_takes_none(is_late: bool) -> None:
    server = Server(opens=is_late is False)
    front = server.open(extended(), end=False)
    if is_late:
        server.send(frame.settings([]))
    assert front.status == 502 and front.exchange.reason is Reason.UNSUPPORTED
    assert not [one for one in server.take() if one.stream]


def test_an_http_1_upgrade_goes_as_a_plain_request() -> None:
    server = Server()
    head = RequestHead(b"GET", b"http", b"svc", b"/x", [field(b"connection", b"upgrade"), field(b"upgrade", b"x")], 0)
    head.wants_tunnel = True
    head.upgrade = b"x"
    server.open(head, end=False)
    got = server.take()
    assert got[0].flags & 1 and len(server.decoder.decode(got[0].payload)) == 4


# ---- carried HTTP/1


@pytest.mark.parametrize(
    ("mark", "version"), [(b"HTTP/1.1", HTTP_1_1), (b"HTTP/1.0", HTTP_1_0), (b"HTTP/9", HTTP_2), (None, HTTP_2)]
)
def test_the_mark_of_a_response_is_taken_off(mark: bytes | None, version: int) -> None:
    server = Server()
    for turn in range(3):
        front = server.request()
        fields = [*OK, (orig_proto.NAME, mark)] if mark is not None else OK
        server.head(1 + 2 * turn, fields)
        assert front.head.version == version
        assert [one.name for one in front.head.fields] == [b"date"] and not front.head.has_l5d


def test_informational_responses_without_end_are_one_response_too_long() -> None:
    """Heads are not subject to windows: a client that does not read could make us keep them all, so they are bounded."""
    server = Server()
    front = server.request()
    got = []
    for _ in range(2 * limits.HEAD_BYTES // limits.INFORMATIONAL_BYTES):
        got += server.head(1, [(b":status", b"103")], end=False)
    assert len(front.informational) == limits.HEAD_BYTES // limits.INFORMATIONAL_BYTES
    assert front.status == 502 and reset_codes(got)
    assert server.wire.aborted is None, "the other requests go on"
