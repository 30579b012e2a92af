"""Section 1 of the field log: HTTP/1 message framing, in every way from client to app."""

from __future__ import annotations

from threading import Event

import pytest

from tests.field.stage import Stage
from tests.kit.http1 import chunks, get, ok, post
from tests.kit.topology import PROXIED
from tests.kit.wire import DEADLINE_S, FIN, RST, Ended, Peer

METHODS = [b"GET", b"DELETE", b"OPTIONS", b"HEAD", b"POST", b"PATCH", b"PROPFIND", b"TRACE"]
BODY = b"forty-two bytes of a body, no more and no less"[:42]


@pytest.mark.parametrize("method", METHODS, ids=lambda one: f"row1-{one.decode()}")
@pytest.mark.parametrize("form", ["chunked", "length", "many-chunks", "trailer"])
def test_any_method_carries_content(stage: Stage, method: bytes, form: str) -> None:
    app = stage.answers()
    head = b"Transfer-Encoding: chunked"
    request, trailers = {
        "chunked": (get(b"/x", head, method=method) + chunks(BODY), []),
        "length": (post(BODY, method=method, target=b"/x"), []),
        "many-chunks": (get(b"/x", head, method=method) + chunks(*[BODY[i : i + 1] for i in range(42)]), []),
        "trailer": (
            get(b"/x", head, b"Trailer: X-Sum", method=method) + chunks(BODY, trailers=b"X-Sum: 9\r\n"),
            [(b"x-sum", b"9")],
        ),
    }[form]
    client = stage.connect()
    for _ in range(2):  # what is left over of the first would break the second
        assert client.ask(request, method).status == 200
    for got in app.requests:
        assert got.start == b"%b /x HTTP/1.1" % method
        assert (got.framing, got.body) == ("length" if form == "length" else "chunked", BODY)
        assert [(name.lower(), value) for name, value in got.trailers] == trailers


@pytest.mark.parametrize(
    "method", [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS"], ids=lambda one: f"row2-{one.decode()}"
)
@pytest.mark.parametrize("lines", [(), (b"Content-Length: 0",)], ids=["none", "zero"])
def test_framing_headers_are_there_or_not_as_the_client_chose(
    stage: Stage, method: bytes, lines: tuple[bytes, ...]
) -> None:
    app = stage.answers()
    assert stage.connect().ask(get(b"/", *lines, method=method), method).status == 200
    (got,) = app.requests
    assert got.all(b"content-length") == [b"0"] * len(lines)
    assert got.all(b"transfer-encoding") == []


RESPONSES = {
    "zero": (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", [b"0"], []),
    "204": (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n", [], []),
    "304": (b"GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", [], []),
    "304-length": (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n", [b"77"], []),
    "head": (b"HEAD", b"HTTP/1.1 200 OK\r\n\r\n", [], []),
    "head-length": (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n", [b"77"], []),
    "chunked-empty": (b"GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [], [b"chunked"]),
    "redirect-zero": (b"POST", b"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n", [b"0"], []),
    "205-zero": (b"POST", b"HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", [b"0"], []),
}  # fmt: skip


@pytest.mark.parametrize("case", RESPONSES, ids=lambda one: f"row2-{one}")
def test_framing_headers_of_responses_are_there_or_not_as_the_app_chose(stage: Stage, case: str) -> None:
    method, answer, lengths, codings = RESPONSES[case]
    stage.answers(answer)
    client = stage.connect()
    for _ in range(2):
        got = client.ask(get(method=method), method)
        assert got.all(b"content-length") == lengths
        assert got.all(b"transfer-encoding") == codings
    assert client.state() == "open"


MEGABYTE = bytes(range(256)) * 4096
ENDLESS = {
    "1.0": b"HTTP/1.0 200 OK\r\n\r\n",
    "1.0-keep-alive": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n",
    "1.1": b"HTTP/1.1 200 OK\r\n\r\n",
    "1.1-close": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
    "1.1-identity-typed": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n",
}


@pytest.mark.parametrize("head", ENDLESS, ids=lambda one: f"row4-app-{one}")
@pytest.mark.parametrize("version", [b"1.1", b"1.0"], ids=["client-1.1", "client-1.0"])
def test_a_response_that_only_the_end_of_the_connection_ends(stage: Stage, head: str, version: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(ENDLESS[head], MEGABYTE)

    stage.play(script)
    client = stage.connect()
    got = client.ask(get().replace(b"HTTP/1.1", b"HTTP/" + version))
    assert got.status == 200 and got.body == MEGABYTE
    assert got.framing == "close" or version == b"1.1"
    if got.framing == "chunked":
        assert client.state() == "open" or b"close" in got.all(b"connection")
    else:
        assert client.rest() == b"" and client.end == FIN


@pytest.mark.parametrize("head", ENDLESS, ids=lambda one: f"row4-cut-{one}")
@pytest.mark.parametrize("version", [b"1.1", b"1.0"], ids=["client-1.1", "client-1.0"])
def test_a_reset_is_never_the_end_of_a_body(stage: Stage, head: str, version: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(ENDLESS[head], b"half of it")
        assert has_arrived.wait(DEADLINE_S)
        peer.reset()

    has_arrived = Event()
    stage.play(script)
    client = stage.connect()
    client.send(get().replace(b"HTTP/1.1", b"HTTP/" + version))
    client.until(b"half of it")
    has_arrived.set()
    rest = client.rest()
    if b"chunked" in client.received:
        assert not rest.endswith(b"0\r\n\r\n")
    else:
        assert rest == b"" and client.end == RST


SMUGGLING = {
    "length-first": (b"Content-Length: 6", b"Transfer-Encoding: chunked"),
    "coding-first": (b"Transfer-Encoding: chunked", b"Content-Length: 6"),
    "tab": (b"Content-Length: 6", b"Transfer-Encoding:\tchunked"),
    "upper": (b"CONTENT-LENGTH: 6", b"TRANSFER-ENCODING: CHUNKED"),
    "connection-names-it": (b"Content-Length: 6", b"Transfer-Encoding: chunked", b"Connection: content-length"),
    "connection-names-coding": (b"Content-Length: 6", b"Transfer-Encoding: chunked", b"Connection: transfer-encoding"),
    "zero": (b"Content-Length: 0", b"Transfer-Encoding: chunked"),
}


@pytest.mark.parametrize("case", SMUGGLING, ids=lambda one: f"row5-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_both_framings_never_pass(stage: Stage, case: str) -> None:
    app = stage.answers()
    client = stage.connect()
    client.send(get(b"/", *SMUGGLING[case], method=b"POST") + b"0\r\n\r\nG" + get(b"/smuggled"))
    assert client.response().status == 400
    assert client.rest() == b"" and client.end == FIN
    assert app.requests == [] and stage.app.saw == b""


@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_response_with_both_framings_is_read_by_its_coding_and_its_connection_is_not_used_again(stage: Stage) -> None:
    """Row 5, for responses: Transfer-Encoding decides, and the app's connection is not used again."""
    stage.answers(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(b"hello"))
    client = stage.connect()
    for _ in range(2):
        got = client.ask(get())
        assert (got.body, got.all(b"content-length")) == (b"hello", [])
    assert len(stage.app.connections) == 2


HEADS = {
    "chunked": (b"HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "length": (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
    "404-chunked": (b"HEAD", b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "304-chunked": (b"GET", b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "304-length": (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100000\r\n\r\n"),
    "204-chunked": (b"GET", b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "204-length": (b"DELETE", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
}


@pytest.mark.parametrize("case", HEADS, ids=lambda one: f"row7-{one}")
def test_a_response_without_a_body_ends_with_its_head_whatever_its_framing_says(stage: Stage, case: str) -> None:
    method, answer = HEADS[case]
    stage.answers(answer)
    client = stage.connect()
    for _ in range(3):  # one whose end is awaited takes longer than a test waits
        assert client.ask(get(method=method), method).status == int(answer[9:12])
    # If an app announces a body for a 204, it is unknown whether it sends one: its connection is not used again.
    assert len(stage.app.connections) == (3 if case.startswith("204") and not stage.is_direct else 1)
    assert client.state() == "open"


ACCEPTED = {
    "plain": b"HTTP/1.1 200 OK\r\n\r\n",
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "longer": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "201": b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
    "1.0": b"HTTP/1.0 200 Connection established\r\n\r\n",
    "close": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda one: f"row8-{one}")
def test_a_tunnel_opens_whatever_framing_its_acceptance_claims(stage: Stage, case: str) -> None:
    def forward_proxy(peer: Peer) -> None:
        assert peer.request().start == b"CONNECT db.example:5432 HTTP/1.1"
        peer.send(ACCEPTED[case], b"glued ")
        while data := peer.sock.recv(65536):
            peer.send(data.upper())
        peer.send(b" bye")

    stage.play(forward_proxy)
    client = stage.connect()
    client.send(get(b"db.example:5432", method=b"CONNECT", host=b"db.example:5432"))
    got = client.response(b"CONNECT")
    assert got.status // 100 == 2
    assert stage.is_direct or not got.all(b"content-length") + got.all(b"transfer-encoding")
    assert client.exactly(6) == b"glued "
    client.send(b"get / http/1.1\r\n\r\n")
    assert client.exactly(18) == b"GET / HTTP/1.1\r\n\r\n"
    client.half_close()
    assert client.rest() == b" bye" and client.end == FIN


def test_a_refused_tunnel_is_an_answer_like_any_other(stage: Stage) -> None:
    """Row 8: an app that refuses a tunnel gives an ordinary answer, and the connection goes on as HTTP."""
    stage.answers(ok(b"who are you", b"Proxy-Authenticate: Basic", status=b"407 Proxy Authentication Required"))
    client = stage.connect()
    for _ in range(2):
        got = client.ask(get(b"db.example:5432", method=b"CONNECT", host=b"db.example:5432"), b"CONNECT")
        assert (got.status, got.body) == (407, b"who are you")


TARGETS = {
    "origin": (b"GET", b"/path?q=1", b"app.ns:8080"),
    "absolute": (b"GET", b"http://app.ns:8080/path?q=1", b"app.ns:8080"),
    "absolute-other-host": (b"GET", b"http://app.ns/path", b"other.example"),
    "absolute-no-path": (b"GET", b"http://app.ns", b"app.ns"),
    "absolute-query-only": (b"GET", b"http://app.ns?q", b"app.ns"),
    "absolute-ip": (b"GET", b"http://127.0.0.1:81/", b"127.0.0.1:81"),
    "absolute-upper": (b"GET", b"HTTP://App.NS/Path", b"App.NS"),
    "options-star": (b"OPTIONS", b"*", b"app.ns"),
    "options-absolute": (b"OPTIONS", b"http://app.ns", b"app.ns"),
    "options-path": (b"OPTIONS", b"/", b"app.ns"),
    "url-in-path": (b"GET", b"/http://other.example/", b"app.ns"),
}


NORMALIZED = {
    "absolute-no-path": b"http://app.ns/",
    "absolute-query-only": b"http://app.ns/?q",
    "absolute-upper": b"http://App.NS/Path",
}
"""Targets in the form that HTTP/2 between proxies can carry: `:path` is never empty, the scheme is in lower case (RFC
3986 section 6.2).
"""


@pytest.mark.parametrize("case", TARGETS, ids=lambda one: f"row10-{one}")
def test_the_form_of_the_target_and_host_stay_as_the_client_chose(stage: Stage, case: str) -> None:
    """The form of target and Host is kept, except for a Host that contradicts the target: it is replaced by the
    target's (RFC 9112 section 3.2.2).
    """
    method, target, host = TARGETS[case]
    app = stage.answers()
    client = stage.connect()
    for _ in range(2):
        assert client.ask(get(target, method=method, host=host), method).status == 200
    if stage.is_pair:
        target = NORMALIZED.get(case, target)
    for got in app.requests:
        assert got.start == b"%b %b HTTP/1.1" % (method, target)
        assert got.all(b"host") == [b"app.ns" if case == "absolute-other-host" and not stage.is_direct else host]


CUT = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf",
    "between-chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    "before-trailers-end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\nX: y\r\n",
}


@pytest.mark.parametrize("case", CUT, ids=lambda one: f"row4-{one}")
def test_a_body_that_its_app_does_not_finish_never_looks_whole(stage: Stage, case: str) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(CUT[case])

    stage.play(script)
    client = stage.connect()
    client.send(get())
    with pytest.raises(Ended) as info:
        client.response()
    assert b"half" in client.received and not str(info.value).endswith("0\\r\\n\\r\\n'")


@pytest.mark.parametrize(
    "status", [b"204 No Content", b"304 Not Modified"], ids=lambda one: f"row7-{one[:3].decode()}-with-a-body"
)
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_body_where_none_may_be_poisons_nobody(stage: Stage, status: bytes) -> None:
    stage.answers(b"HTTP/1.1 %b\r\nContent-Length: 5\r\n\r\nhello" % status)
    client = stage.connect()
    for _ in range(3):
        assert client.ask(get()).start.startswith(b"HTTP/1.1 " + status[:3])
    assert len(stage.app.connections) == 3
