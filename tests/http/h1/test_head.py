"""HTTP/1 heads byte by byte: what is refused, what is kept, what is written."""

from __future__ import annotations

import pytest

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError
from proxy.http import headers
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.h1 import block
from proxy.http.h1 import head as h1
from proxy.http.h1.block import header_block
from proxy.http.h1.repair import with_crlf
from proxy.http.head import HTTP_1_0, TUNNEL, UNKNOWN, RequestHead, ResponseHead
from tests.kit.pair import Pair
from tests.kit.streams import FakeServer


def request(data: bytes) -> RequestHead:
    start, _, text = data.partition(b"\r\n")
    head, _, is_good = h1.read_request(start + b"\r\n" + text)
    assert is_good, "bad target"
    return head


def response(data: bytes, method: bytes = b"GET") -> ResponseHead:
    start, _, text = data.partition(b"\r\n")
    return h1.read_response(start, header_block(text), method)


@pytest.mark.parametrize(
    "value",
    [
        b"+10",
        b"-1",
        b"1_0",
        b"1 0",
        b"0x1",
        b"",
        b" ",
        b"1,1",
        b"\xd9\xa1",
        b"1" * 19,
        b"1;",
        b"1\x0b",
        b"\xef\xbc\x91",
        b"1.0",
        b"NaN",
    ],
)
def test_content_length_is_ascii_digits_and_bounded(value: bytes) -> None:
    for read in (
        lambda: request(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + value),
        lambda: response(b"HTTP/1.1 200 OK\r\nContent-Length: " + value),
    ):
        with pytest.raises(ProtocolError):
            read()


@pytest.mark.parametrize(
    "value",
    [
        b",chunked",
        b"chunked,",
        b"chunked, chunked",
        b"identity",
        b"gzip, chunked",
        b"xchunked",
        b"chunked;q=1",
        b"",
        b"\x0bchunked",
    ],
)
def test_transfer_encoding_is_exactly_chunked(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        request(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: " + value)
    with pytest.raises(ProtocolError):
        request(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: " + value)
    assert request(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked").body_size == UNKNOWN


@pytest.mark.parametrize(
    "line",
    [
        b": x", b":", b"Content-Length 10", b"Foo", b"X : 1", b"X\t: 1", b"X\x85: 1", b"X\xa0: 1", b"\tX: 1", b" X: 1", b"X: a\rb",
        b"X: a\x00", b"X: a\nY: b\x00", b"X\x00: a", b"X: \x7f", b"(x): y", b"X: a\r", b"\xc3\xa9: x", b'"x": y',
    ],
)  # fmt: skip
def test_header_lines_follow_the_grammar(line: bytes) -> None:
    for _ in range(2):  # what was refused once is refused when it is known
        with pytest.raises(ProtocolError):
            request(b"GET / HTTP/1.1\r\nHost: a\r\n" + line)
        with pytest.raises(ProtocolError):
            request(b"GET / HTTP/1.1\r\n" + line + b"\r\nHost: a")


@pytest.mark.parametrize(
    "line",
    [
        b"GET  / HTTP/1.1", b"GET / HTTP/1.1 ", b"GET / HTTP/1.1 x", b"GET / http/1.1", b"GET /\x7f HTTP/1.1", b"GET / HTTP/1",
        b"GET /\tHTTP/1.1", b" GET / HTTP/1.1", b'G="T / HTTP/1.1', b"GET !", b"GET", b"", b"GET / HTTP/11", b"G\x00T / HTTP/1.1",
        b"GET /\x0b HTTP/1.1", b"GET / XTTP/1.1", b"GET /a b HTTP/1.1",
    ],
)  # fmt: skip
def test_request_lines_follow_the_grammar(line: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        request(line + b"\r\nHost: a")
    assert caught.value.status == 400


@pytest.mark.parametrize("version", [b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/9.9"])
def test_other_versions_are_named(version: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        request(b"GET / " + version + b"\r\nHost: a")
    assert caught.value.status == 505


@pytest.mark.parametrize(
    "host",
    [
        b"a b",
        b"allowed\x00.evil",
        b"a,b",
        b"u@a",
        b"a/b",
        b"a:b",
        b"a:123456",
        b"[::1",
        b"::1",
        b"a:1:2",
        b"a?b",
        b"http://a",
    ],
)
def test_hosts_that_are_none(host: bytes) -> None:
    with pytest.raises(ProtocolError):
        request(b"GET / HTTP/1.1\r\nHost: " + host)


@pytest.mark.parametrize(
    "host", [b"a", b"a:80", b"a.b.c.", b"[::1]:80", b"[fe80::1%25eth0]", b"10.0.0.1:8080", b"", b"a_b", b"A", b"a:"]
)
def test_hosts_that_are_some(host: bytes) -> None:
    head = request(b"GET / HTTP/1.1\r\nHost: " + host)
    assert head.authority == host and head.has_host and head.needs_own_connection == (not host)


def test_one_host_exactly() -> None:
    for bad in (b"X: y", b"Host: a\r\nHost: a"):
        with pytest.raises(ProtocolError):
            request(b"GET / HTTP/1.1\r\n" + bad)
    assert request(b"GET / HTTP/1.0\r\nX: y").needs_own_connection


@pytest.mark.parametrize(
    ("line", "status", "size"),
    [
        (b"HTTP/1.1 200 OK", 200, UNKNOWN), (b"HTTP/1.1 200 ", 200, UNKNOWN), (b"HTTP/1.1 200", 200, UNKNOWN), (b"HTTP/1.0 404 \xff", 404, UNKNOWN),
        (b"HTTP/1.1 204 x", 204, 0), (b"HTTP/1.1 304 x", 304, 0), (b"HTTP/1.1 101 x", 101, TUNNEL), (b"HTTP/1.1 103 x", 103, 0), (b"HTTP/1.1 999 ", 999, UNKNOWN),
    ],
)  # fmt: skip
def test_status_lines(line: bytes, status: int, size: int) -> None:
    head = response(line + b"\r\nX: y")
    assert head.status == status and head.body_size == size


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/2 200 OK",
        b"HTTP/1.1 099 x",
        b"HTTP/1.1 2000",
        b"HTTP/1.1 200 a\rb",
        b"ICY 200 OK",
        b"HTTP/1.1 +20 x",
    ],
)
def test_bad_status_lines(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        response(line)


def test_what_a_response_may_not_say_of_its_length_is_left_out() -> None:
    for data, method in (
        (b"HTTP/1.1 204 x\r\nContent-Length: 3", b"GET"),
        (b"HTTP/1.1 200 x\r\nContent-Length: 3", b"CONNECT"),
        (b"HTTP/1.1 200 x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked", b"GET"),
    ):
        assert response(data, method).fields == []
    for data, method in (
        (b"HTTP/1.1 304 x\r\nContent-Length: 3", b"GET"),
        (b"HTTP/1.1 200 x\r\nContent-Length: 3", b"HEAD"),
    ):
        assert [one.value for one in response(data, method).fields] == [b"3"]


def test_limits_of_a_head() -> None:
    lines = b"\r\n".join([b"Host: a", *(b"x: y",) * (limits.HEAD_FIELDS - 1)])
    assert len(request(b"GET / HTTP/1.1\r\n" + lines).fields) == limits.HEAD_FIELDS
    with pytest.raises(ProtocolError) as caught:
        request(b"GET / HTTP/1.1\r\n" + lines + b"\r\nx: y")
    assert caught.value.status == 431
    assert h1.over_limit(b"GET /" + b"a" * limits.HEAD_BYTES).status == 414
    assert h1.over_limit(b"GET / HTTP/1.1\r\nX: " + b"a" * limits.HEAD_BYTES).status == 431


@pytest.mark.parametrize(
    ("target", "is_absolute", "authority", "path"),
    [
        (b"http://b/x?y", True, b"b", b"/x?y"), (b"HTTP://B:81", True, b"B:81", b"/"), (b"https://b?y", True, b"b", b"/?y"), (b"ftp://b/", True, b"b", b"/"),
        (b"/http://b", False, b"a", b"/http://b"), (b"//b/x", False, b"a", b"//b/x"),
    ],
)  # fmt: skip
def test_targets(target: bytes, is_absolute: bool, authority: bytes, path: bytes) -> None:
    data = b"GET " + target + b" HTTP/1.1\r\nHost: a"
    head = request(data)
    assert (head.is_absolute, head.authority, head.path) == (is_absolute, authority, path)
    assert h1.write_request(head) == b"GET " + target + b" HTTP/1.1\r\nHost: " + authority + b"\r\n\r\n"


def test_a_head_that_is_renamed_addresses_another() -> None:
    head = request(b"GET http://b/x HTTP/1.1\r\nX: y\r\nHost: a")
    head = head.renamed(b"c:81")
    assert h1.write_request(head) == b"GET http://c:81/x HTTP/1.1\r\nHost: c:81\r\nX: y\r\n\r\n"
    copy = head.copy()
    names = [name for name in dir(head) if not name.startswith("_") and not callable(getattr(head, name))]
    assert "needs_own_connection" in names and all(getattr(copy, name) == getattr(head, name) for name in names)
    assert copy.fields is not head.fields


def test_host_is_made_from_the_authority_but_not_for_http10() -> None:
    head = RequestHead(b"GET", b"http", b"svc", b"/", [], 0)
    assert h1.write_request(head) == b"GET / HTTP/1.1\r\nHost: svc\r\n\r\n"
    head.version = HTTP_1_0
    assert h1.write_request(head) == b"GET / HTTP/1.0\r\n\r\n"
    head.body_size = UNKNOWN
    assert h1.write_request(head, True) == b"GET / HTTP/1.1\r\nHost: svc\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_familiar_blocks_are_remembered_and_their_heads_do_not_share_fields() -> None:
    data = b"GET / HTTP/1.1\r\nHost: a\r\nX-Familiar: 1"
    heads = [request(data) for _ in range(4)]
    heads[0].fields.clear()
    assert all(len(head.fields) == 2 for head in heads[1:])
    text = data.partition(b"\r\n")[2]
    assert header_block(text) is header_block(text)


def test_a_flood_of_new_lines_leaves_the_tables_bounded() -> None:
    for number in range(3 * limits.INTERNED_FIELDS):
        request(b"GET / HTTP/1.1\r\nHost: a\r\nX-%d: 1" % number)
    assert len(headers._lines) <= 2 * limits.INTERNED_FIELDS and len(block._blocks) <= 2 * limits.INTERNED_FIELDS


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"a\nb\n\nrest\n", b"a\r\nb\r\n\r\nrest\n"), (b"a\r\nb\n\r\nrest", b"a\r\nb\r\n\r\nrest"), (b"a\nb\r\n\r\n\n\n", b"a\r\nb\r\n\r\n\n\n"),
        (b"a\r\nb\r\n\r\nx\n\n", None), (b"a\nb\n", None), (b"", None),
    ],
)  # fmt: skip
def test_line_ends(data: bytes, want: bytes | None) -> None:
    assert with_crlf(data) == want


def test_a_cookie_in_crumbs_is_one_field_over_http1() -> None:
    crumbs = [headers.field(b"cookie", b"a=1"), headers.field(b"x", b"y"), headers.field(b"cookie", b"b=2")]
    head = RequestHead(b"GET", b"http", b"svc", b"/", crumbs, 0)
    head.has_crumbs = True
    pair = Pair()
    client = pair.dial(pair.pool)
    exchange = Exchange(FakeServer(), head, 0.0)
    exchange.request_ended = True
    client.open(Attempt(exchange, head))
    assert len(crumbs) == 3, "the head itself stays as it was"
    assert pair.wires[0].take() == b"GET / HTTP/1.1\r\nHost: svc\r\ncookie: a=1; b=2\r\nx: y\r\n\r\n"


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        (b"Connection: X-A, close\r\nX-A: 1\r\nUpgrade: foo\r\n", b""),
        (b"Connection: X-A, Upgrade, keep-alive\r\nX-A: 1\r\nKeep-Alive: 5\r\nUpgrade: foo\r\n", b"Upgrade: foo\r\nConnection: Upgrade\r\n"),
        (b"Upgrade: foo\r\nProxy-Connection: x\r\nConnection: upgrade\r\n", b"Upgrade: foo\r\nConnection: upgrade\r\n"),
        (b"Upgrade: foo\r\n", b"Upgrade: foo\r\n"),
    ],
    ids=["not-named", "named-among-others", "named", "nothing-named"],
)  # fmt: skip
def test_an_upgrade_takes_no_other_hop_by_hop_fields_along(lines: bytes, seen: bytes) -> None:
    text = b"Host: svc\r\n" + lines
    head, _, _ = h1.read_request(b"GET / HTTP/1.1\r\n" + text.removesuffix(b"\r\n"))
    assert head.wants_tunnel is bool(seen)
    assert h1.write_request(head) == b"GET / HTTP/1.1\r\nHost: svc\r\n" + seen + b"\r\n"


_SENT_AS_THEY_CAME = (
    b"GET / HTTP/1.1\r\nHost: web\r\nX-Request-ID:one \r\nAccept:*/*",
    b"GET /a?b HTTP/1.1\r\nhost:\tweb:80\t\r\nCookie: a=b\r\ncookie: c=d",
    b"POST / HTTP/1.1\r\nContent-Length: 3\r\nHost: web\r\ndate: today",
    b"GET / HTTP/1.1\r\nHost:",
)
_SENT_OTHERWISE = (
    b"GET / HTTP/1.0\r\nHost: web",
    b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close",
    b"GET / HTTP/1.1\r\nHost: web\r\nConnection: x-a\r\nX-A: 1",
    b"GET / HTTP/1.1\r\nHost: web\r\nTE: trailers",
    b"GET / HTTP/1.1\r\nHost: web\r\nUpgrade: h2c",
    b"GET / HTTP/1.1\r\nHost: web\r\nConnection: upgrade\r\nUpgrade: websocket",
    b"POST / HTTP/1.1\r\nHost: web\r\nTransfer-Encoding: chunked",
    b"POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 3\r\nContent-Length: 3",
    b"GET / HTTP/1.1\r\nHost: web\r\nl5d_client_id: me",
    b"GET http://web/ HTTP/1.1\r\nHost: other",
    b"OPTIONS * HTTP/1.1\r\nHost: web",
)


@pytest.mark.parametrize("text", _SENT_AS_THEY_CAME)
def test_a_head_of_which_nothing_is_changed_is_sent_octet_for_octet(text: bytes) -> None:
    head, _, _ = h1.read_request(text)
    assert head.text == text
    assert h1.write_request(head) == text + b"\r\n\r\n" == h1.write_request(head.copy())
    assert head.copy().text == b""  # whoever copies it may change it


@pytest.mark.parametrize("text", _SENT_OTHERWISE)
def test_any_other_is_composed_of_its_parts(text: bytes) -> None:
    head, _, _ = h1.read_request(text)
    assert head.text == b""
    assert h1.write_request(head) == h1.write_request(head.copy())
