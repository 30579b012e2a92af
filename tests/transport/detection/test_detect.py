"""HTTP detection: Linkerd's rule as a pure function, and the codec that waits where the rule would do harm."""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from proxy.transport.detection.detect import DETECT_HTTP, Detection, may_become_http, sniff
from proxy.transport.detection.first_bytes import FirstBytes, Opened
from tests.kit import ListWire
from tests.kit.sockets import Recorder, Ticking

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LONG_GET = b"GET /foo/bar/bar/blah HTTP/1.1\r\nHost: foob.example.com\r\nUser-Agent: a\r\n\r\n"


class Detected:
    """The results of one detection."""

    def __init__(self, timeout_s: float = 10.0) -> None:
        self.wire = ListWire()
        self.ticking = Ticking()
        self.found: list[tuple[Detection, bytes]] = []
        self.opened = Recorder(self.wire)
        self.codec = FirstBytes(self.wire, self.ticking.reactor.wheel, DETECT_HTTP, timeout_s, self._detected)

    def _detected(self, detection: Detection, first: bytes) -> Opened | Reason:
        self.found.append((detection, first))
        return Reason.PEER_CLOSED if detection is Detection.ERROR else Opened(self.opened, first)

    def after(self, *pieces: bytes) -> list[tuple[Detection, bytes]]:
        for piece in pieces:
            self.codec.feed(piece)
        return self.found


@pytest.mark.acceptance("ACC-10")
def test_nothing_in_time() -> None:
    detected = Detected(0.001)
    detected.ticking.pass_time(0.05)
    assert detected.found == [(Detection.READ_TIMEOUT, b"")] and detected.wire.aborted is None


@pytest.mark.acceptance("ACC-11")
def test_http2() -> None:
    for first in (PREFACE[:14], PREFACE, PREFACE + b"garbage" * 30):
        assert sniff(first) == "http2"
        assert Detected().after(first) == [(Detection.HTTP2, first)]


@pytest.mark.acceptance("ACC-12")
def test_fewer_than_14_bytes_in_one_read_are_not_http() -> None:
    for size in range(1, 14):
        assert sniff(b"GET / HTTP/1.1"[:size]) == "opaque"


@pytest.mark.acceptance("ACC-13")
def test_the_shortest_request_line() -> None:
    assert sniff(b"GET / HTTP/1.1\r\n") == "http1"
    assert Detected().after(b"GET / HTTP/1.1\r\n") == [(Detection.HTTP1, b"GET / HTTP/1.1\r\n")]


@pytest.mark.acceptance("ACC-14")
@pytest.mark.parametrize("request_bytes", [LONG_GET, b"POST /foo HTTP/1.1\r\n"])
def test_every_prefix_of_14_bytes_and_more_is_http1(request_bytes: bytes) -> None:
    for size in range(14, len(request_bytes) + 1):
        assert sniff(request_bytes[:size]) == "http1"
        assert Detected().after(request_bytes[:size]) == [(Detection.HTTP1, request_bytes[:size])]


@pytest.mark.acceptance("ACC-15")
def test_what_is_not_http_is_kept() -> None:
    for first in (b"foo.bar.blah\r\nbobo", b"foo.bar.blah\r\nbobo" * 100, bytes(range(256)) * 8):
        assert sniff(first) == "opaque"
        assert Detected().after(first) == [(Detection.NOT_HTTP, first)]


@pytest.mark.acceptance("ACC-16")
def test_an_immediate_end_is_an_error() -> None:
    detected = Detected()
    detected.codec.eof()
    assert detected.found == [(Detection.ERROR, b"")] and detected.wire.aborted is Reason.PEER_CLOSED
    detected.codec.lost(Reason.PEER_CLOSED)
    assert len(detected.found) == 1


@pytest.mark.parametrize(
    "first",
    [
        b"\r\n\r\nGET / HTTP/1.1\r\n",
        b"\nGET / HTTP/1.0\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"M-SEARCH-and-a-very-long-method",
        b"GET /" + b"a" * 3000,
        b"GET /caf\xc3\xa9 HTTP/1.1\r\n",
        b"CONNECT web.default:80 HTTP/1.1\r\n",
        b"GET http://web/ HTTP/1.1\r\nanything that follows \x00\x01",
    ],
)
def test_http1_in_its_variety(first: bytes) -> None:
    assert sniff(first) == "http1"


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.2\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"GET  / HTTP/1.1\r\n",
        b"GET / HTTP/1.1 \r\n",
        b"GET /a b HTTP/1.1\r\n",
        b"GET / http/1.1\r\n",
        b"GET /\x00 HTTP/1.1\r\n",
        b"GE\x7f / HTTP/1.1\r\n",
        b"EHLO mail.local\r\n",
        b"GET /index.html\r\n",
        b" GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 GET",
        b"PRI * HTTP/2.1\r\n\r\n",
        b"\r\r\nGET / HTTP/1.1\r\n",
    ],
)
def test_what_only_looks_like_http(first: bytes) -> None:
    assert sniff(first) == "opaque"


@pytest.mark.parametrize("data", [LONG_GET, PREFACE, b"POST / HTTP/1.0\r\n\r\n"])
def test_a_client_that_sends_byte_by_byte_is_http_all_the_same(data: bytes) -> None:
    """Linkerd takes a client that sends byte by byte for opaque TCP (docs/linkerd/inbound.md, section 2); we wait as
    long as every byte fits HTTP.
    """
    detected = Detected()
    pieces = [data[at : at + 1] for at in range(14)]
    assert detected.after(*pieces[:13]) == []
    detected.ticking.pass_time(0.19)
    detected.codec.feed(pieces[13])
    expected = Detection.HTTP2 if data is PREFACE else Detection.HTTP1
    assert detected.found == [(expected, data[:14])]
    detected.ticking.pass_time(20)
    assert len(detected.found) == 1


def test_the_wait_is_short_and_begins_with_the_first_byte() -> None:
    detected = Detected()
    detected.ticking.pass_time(5)
    assert detected.after(b"PING\r") == [(Detection.NOT_HTTP, b"PING\r")]
    detected = Detected()
    assert detected.after(b"USER") == []
    detected.ticking.pass_time(0.15)
    assert detected.after(b"x") == []
    detected.ticking.pass_time(0.1)
    assert detected.found == [(Detection.NOT_HTTP, b"USERx")]


BEGUN = [
    *(b"GET / HTTP/1.1"[:size] for size in range(1, 14)), b"C", b"OPTIO", b"PATCH ", b"\r\n", b"\n\r\nPOS", b"HEAD *", b"MKCOL /a",
    *(b"PRI * HTTP/2.0"[:size] for size in range(1, 14)),
]  # fmt: skip


@pytest.mark.parametrize("first", BEGUN)
def test_a_request_that_has_begun_is_waited_for_as_long_as_a_silent_client(first: bytes) -> None:
    """Its rest must not pass as bytes that no route and no rate limit sees. Linkerd lets it (docs/linkerd/inbound.md, section 2)."""
    detected = Detected()
    detected.ticking.pass_time(5)
    assert detected.after(first) == []
    detected.ticking.pass_time(4.9)
    assert detected.found == []
    detected.ticking.pass_time(0.2)
    is_preface = first.startswith(b"PR")
    assert detected.found == [(Detection.HTTP2 if is_preface else Detection.HTTP1, first)]


def test_a_word_that_turns_out_to_be_a_method_is_waited_for() -> None:
    detected = Detected()
    assert detected.after(b"PURGE") == []
    detected.ticking.pass_time(0.1)
    assert detected.after(b" /x") == []
    detected.ticking.pass_time(9)
    assert detected.after(b" HTTP/1.1\r\n") == [(Detection.HTTP1, b"PURGE /x HTTP/1.1\r\n")]
    detected = Detected()
    assert detected.after(b"PU") == []
    detected.ticking.pass_time(1)
    assert detected.after(b"SH") == []
    detected.ticking.pass_time(0.25)
    assert detected.found == [(Detection.NOT_HTTP, b"PUSH")]


VAGUE = [
    b"hello-to-the-server",
    b"what is-it-that-you-want",
    b"x" * 1000,
    b"GET products-of-today",
    b"\r\nM-SEARCH-and-a-very-long-method",
]


@pytest.mark.parametrize("first", VAGUE, ids=lambda one: one[:24].decode())
def test_a_word_alone_is_no_request_unless_more_follows(first: bytes) -> None:
    """Linkerd waits for the rest of a request, and never passes these bytes on."""
    assert sniff(first) == "http1"
    detected = Detected()
    assert detected.after(first) == []
    detected.ticking.pass_time(0.25)
    assert detected.found == [(Detection.NOT_HTTP, first)]
    detected = Detected()
    detected.codec.feed(first)
    detected.codec.eof()
    assert detected.found == [(Detection.NOT_HTTP, first)]
    assert Detected().after(b"GET products-of-", b"today HTTP/1.1\r\n")[0][0] is Detection.HTTP1


def test_a_long_run_of_token_characters_is_not_waited_on() -> None:
    assert Detected().after(b"x" * 1024) == [(Detection.NOT_HTTP, b"x" * 1024)]


@pytest.mark.parametrize(
    "first",
    [
        b"GET /a b HTTP/1.1\r\n", b"GET  / HTTP/1.1\r\n", b"GET\t/ HTTP/1.0\n", b"POST / HTTP/1.1 \r\n", b"DELETE /\x00 HTTP/1.1\r\n",
        b"GET HTTP/1.1\r\nHost: a\r\n\r\n", b"\r\nHEAD /\x0c\tHTTP/1.1\r\n", b"GET /a b HTTP/1.2\r\n", b"GET / HTTP/1.2\r\n",
        b"PURGE /x HTTP/2.0\r\n", b"GET / HTTP/01.1\r\n", b"GET / HTTP/3\r\n", b"GET / HTTP/1.1.1\r\n",
    ],
)  # fmt: skip
def test_a_request_line_that_cannot_be_read_is_http_all_the_same(first: bytes) -> None:
    """A request line that cannot be read gets its 400 here, as it does later on a connection."""
    assert sniff(first) == "opaque"
    assert Detected().after(first) == [(Detection.HTTP1, first)]


@pytest.mark.parametrize(
    "first",
    [
        b"INFO GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1 200 17\n",
        b"GET /x RTSP/1.0\r\n",
        b"GET /x HTTP/1.1x\r\n",
        b"GET a\n / HTTP/1.1\n",
    ],
)
def test_other_lines_with_a_request_in_them_are_not(first: bytes) -> None:
    assert Detected().after(first) == [(Detection.NOT_HTTP, first)]


def test_an_end_after_a_few_bytes() -> None:
    detected = Detected()
    detected.codec.feed(b"GET /")
    detected.codec.eof()
    assert detected.found == [(Detection.NOT_HTTP, b"GET /")] and detected.opened.has_eof
    assert detected.wire.aborted is None


def test_a_loss_is_told_once() -> None:
    detected = Detected()
    detected.codec.feed(b"GET /")
    detected.codec.lost(Reason.CONNECTION_RESET)
    detected.ticking.pass_time(20)
    assert detected.found == [(Detection.ERROR, b"GET /")]


def test_what_may_become_http() -> None:
    assert may_become_http(b"G") and may_become_http(b"PRI * HTTP/2") and may_become_http(b"GET / HTTP/1")
    assert not may_become_http(b"PING\r\n") and not may_become_http(b"\x00") and not may_become_http(b"GET / HTTP/1.1")
