"""A head that comes again is not judged again: the result must be the same as the first time."""

from __future__ import annotations

from itertools import product

import pytest

from proxy.http.h1 import block, head
from proxy.http.h1.head import known_request, known_response
from proxy.http.headers import field_of_line, known_line
from tests.kit.pair import Pair

REQUESTS = (
    b"GET /a HTTP/1.1\r\nHost: svc\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: svc\r\nConnection: close\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: svc\r\nl5d-dst-override: x\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nHost: svc\r\n\r\n",
    b"GET /a HTTP/1.0\r\nHost: svc\r\n\r\n",
    b"GET http://svc/a HTTP/1.1\r\nHost: svc\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: svc\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: svc\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /a HTTP/1.1\r\nHost: svc\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: svc\r\nTE: trailers\r\nConnection: TE\r\nContent-Length: 0\r\n\r\n",
)
RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 Fine\r\nDate: now\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.0 200 OK\r\nDate: now\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nDate: now\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nDate: now\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nDate: now\r\nContent-Length: 0\r\n\r\n",
)


def once(request: bytes, response: bytes) -> tuple[bytes, bytes, bool, bool]:
    """What an app and a client get over new connections, and whether each of the two connections has ended."""
    pair = Pair()
    pair.server.feed(request)
    to_app = pair.wires[0].take()
    if request.startswith(b"HEAD"):
        response = response.replace(b"\r\n\r\nok", b"\r\n\r\n")
    pair.clients[0].feed(response)
    return to_app, pair.wire.take(), pair.wires[0].is_over, pair.wire.is_over


@pytest.mark.parametrize(("request_", "response"), list(product(REQUESTS, RESPONSES)))
def test_the_tenth_time_is_as_the_first(request_: bytes, response: bytes) -> None:
    for table in (block._blocks, head._requests, head._responses):
        table.clear()
    first = once(request_, response)
    for _ in range(4):
        assert once(request_, response) == first
    assert once(REQUESTS[3], response)[1].count(b"ok") == 0, "whatever was remembered, HEAD has no body"


def test_the_third_time_a_head_is_known() -> None:
    text, answer = REQUESTS[0][:-4], RESPONSES[1].removesuffix(b"\r\n\r\nok")
    for table in (block._blocks, head._requests, head._responses):
        table.clear()
    for line in (b"Host: svc", b"Date: now", b"Content-Length: 2"):
        field_of_line(line)
        field_of_line(line)
    known = []
    for _ in range(3):
        known.append((known_request(text) is not None, known_response(answer) is not None))
        once(REQUESTS[0], RESPONSES[1])
    assert known == [(False, False), (False, False), (True, True)]


def test_a_line_is_remembered_from_its_second_time_on() -> None:
    line = b"x-request-id: 9f1c"
    assert field_of_line(line).value == b"9f1c"
    assert known_line(line) is None
    again = field_of_line(line)
    assert known_line(line) is again is field_of_line(line)


def test_what_comes_once_is_not_remembered() -> None:
    head._requests.clear()
    for number in range(50):
        once(b"GET /%d HTTP/1.1\r\nHost: once-%d\r\n\r\n" % (number, number), RESPONSES[0])
        once(b"GET /same HTTP/1.1\r\nHost: svc\r\nX-Id: %d\r\n\r\n" % number, RESPONSES[0])
        once(b"GET /other-%d HTTP/1.1\r\nHost: same\r\n\r\n" % number, RESPONSES[0])
    assert len(head._requests) == 0
