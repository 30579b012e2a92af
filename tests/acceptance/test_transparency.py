"""HTTP/1 whose peers must not notice the proxies: through one inbound proxy, and through a pair with an HTTP/2 hint.

Client and app are plain sockets with a reader of their own, and their bytes are compared.
"""

from __future__ import annotations

import socket

import pytest

from tests.field.stage import Stage
from tests.kit.app import Script
from tests.kit.http1 import Message, chunks, get, ok, post
from tests.kit.topology import IN, PAIR
from tests.kit.wire import FIN, Peer

HOST = b"transparency.test.svc.cluster.local"
METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"PATCH"]


def lower_names(message: Message) -> set[bytes]:
    return {name.lower() for name, _ in message.fields}


@pytest.mark.acceptance("TRANS-10")
def test_a_get(stage: Stage) -> None:
    stage.answers(ok(b"hello h1"))
    assert stage.connect().ask(get(host=HOST)).body == b"hello h1"


@pytest.mark.acceptance("TRANS-11")
def test_fields_that_a_request_names_in_connection_end_at_the_proxy(stage: Stage) -> None:
    app = stage.answers()
    lines = (b"Connection: x-foo-bar, close", b"X-Foo-Bar: baz", b"Keep-Alive: 500", b"Proxy-Connection: a")
    assert stage.connect().ask(get(b"/", *lines, host=HOST)).status == 200
    assert not lower_names(app.requests[0]) & {b"x-foo-bar", b"keep-alive", b"proxy-connection"}


@pytest.mark.acceptance("TRANS-12")
def test_fields_that_a_response_names_in_connection_end_at_the_proxy(stage: Stage) -> None:
    lines = (b"Connection: close, x-server-quux", b"X-Server-Quux: a b", b"Keep-Alive: 500", b"Proxy-Connection: a")
    stage.answers(ok(b"ok", *lines))
    got = stage.connect().ask(get(host=HOST))
    assert got.status == 200 and got.body == b"ok"
    assert not lower_names(got) & {b"x-server-quux", b"keep-alive", b"proxy-connection"}


@pytest.mark.acceptance("TRANS-13")
def test_http_1_0_with_a_host_stays_http_1_0(stage: Stage) -> None:
    app = stage.answers(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")
    got = stage.connect().ask(b"GET / HTTP/1.0\r\nHost: %b\r\n\r\n" % HOST)
    assert got.start == b"HTTP/1.0 200 OK"
    (request,) = app.requests
    assert request.start == b"GET / HTTP/1.0" and request.all(b"host") == [HOST]


@pytest.mark.acceptance("TRANS-14")
def test_an_absolute_target_goes_on_as_it_came_and_host_follows_it(stage: Stage) -> None:
    """Better on purpose: linkerd2-proxy leaves a Host as it is that names another server than the target."""
    app = stage.answers()
    target = b"http://%b/" % HOST
    got = stage.connect().ask(get(target, host=b"foo.bar"))
    assert got.start == b"HTTP/1.1 200 OK"
    (request,) = app.requests
    assert request.start == b"GET %b HTTP/1.1" % target and request.all(b"host") == [HOST]


def talks(answer: bytes) -> tuple[list[Message], Script]:
    """A script that answers the head with `answer`, then one line of the tunnel with another line, until its end."""
    heads: list[Message] = []

    def script(peer: Peer) -> None:
        heads.append(peer.request())
        peer.send(answer)
        assert peer.until(b"\n") == b"hi all\n"
        peer.send(b"welcome!\n")
        assert peer.rest() == b"" and peer.end == FIN

    return heads, script


def talk(client: Peer) -> None:
    """The client's half of that tunnel; the end passes both ways."""
    client.send(b"hi all\n")
    assert client.until(b"\n") == b"welcome!\n"
    client.half_close()
    assert client.rest() == b"" and client.end == FIN


@pytest.mark.acceptance("TRANS-15")
def test_an_upgrade(stage: Stage) -> None:
    heads, script = talks(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: chatproto\r\nConnection: upgrade\r\n\r\n")
    stage.play(script)
    client = stage.connect()
    got = client.ask(get(b"/chat", b"Connection: upgrade", b"Upgrade: chatproto", host=HOST))
    assert got.start == b"HTTP/1.1 101 Switching Protocols" and got.all(b"upgrade") == [b"chatproto"]
    talk(client)
    assert heads[0].all(b"upgrade") == [b"chatproto"]


@pytest.mark.acceptance("TRANS-16")
def test_how_it_was_carried_is_nobodys_business(stage: Stage) -> None:
    app = stage.answers()
    got = stage.connect().ask(get(host=HOST))
    assert got.status == 200
    assert b"l5d-orig-proto" not in lower_names(got) | lower_names(app.requests[0])


@pytest.mark.acceptance("TRANS-17")
def test_an_upgrade_to_http_2_is_not_offered_on(stage: Stage) -> None:
    app = stage.answers()
    lines = (b"Upgrade: h2c", b"HTTP2-Settings: ", b"Connection: upgrade, http2-settings")
    assert stage.connect().ask(get(b"/", *lines, host=HOST)).start == b"HTTP/1.1 200 OK"
    assert not lower_names(app.requests[0]) & {b"connection", b"upgrade", b"http2-settings"}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(b"", marks=pytest.mark.acceptance("TRANS-18")),
        pytest.param(b"Content-Length: 0\r\n", marks=pytest.mark.acceptance("TRANS-19")),
    ],
    ids=["plain", "with-content-length"],
)
def test_connect(stage: Stage, fields: bytes) -> None:
    heads, script = talks(b"HTTP/1.1 200 OK\r\n%b\r\n" % fields)
    stage.play(script)
    client = stage.connect()
    got = client.ask(get(HOST, method=b"CONNECT", host=HOST), b"CONNECT")
    assert got.start == b"HTTP/1.1 200 OK"
    talk(client)
    assert heads[0].start == b"CONNECT %b HTTP/1.1" % HOST


BAD_TARGETS = [b"/origin-form", b"/", b"http://test/bar", b"http://test", b"*"]


def refused(stage: Stage, request: bytes) -> bytes:
    """The start line that answers a bad request; no app receives it."""
    app = stage.answers()
    got = stage.connect().ask(request)
    assert got.status == 400 and not app.requests and not stage.app.connections
    return got.start


@pytest.mark.acceptance("TRANS-20")
@pytest.mark.parametrize("target", BAD_TARGETS, ids=lambda one: one.decode())
def test_connect_to_what_is_no_authority(stage: Stage, target: bytes) -> None:
    assert refused(stage, get(target, method=b"CONNECT", host=b"test")) == b"HTTP/1.1 400 Bad Request"


@pytest.mark.acceptance("TRANS-21")
def test_a_get_of_an_authority(stage: Stage) -> None:
    assert refused(stage, get(b"test", host=b"test")) == b"HTTP/1.1 400 Bad Request"


@pytest.mark.acceptance("TRANS-22")
def test_connect_of_http_1_0(stage: Stage) -> None:
    assert refused(stage, b"CONNECT test HTTP/1.0\r\nHost: test\r\n\r\n") == b"HTTP/1.0 400 Bad Request"


@pytest.mark.acceptance("TRANS-23")
def test_a_body_of_known_length(stage: Stage) -> None:
    app = stage.answers()
    assert stage.connect().ask(post(b"hello")).status == 200
    (request,) = app.requests
    assert request.all(b"content-length") == [b"5"] and request.body == b"hello"


@pytest.mark.acceptance("TRANS-24")
def test_bodies_of_unknown_length(stage: Stage) -> None:
    chunked = b"Transfer-Encoding: chunked"
    app = stage.answers(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % chunked + chunks(b"world"))
    got = stage.connect().ask(get(b"/", chunked, method=b"POST", host=HOST) + chunks(b"hello"))
    (request,) = app.requests
    assert request.all(b"transfer-encoding") == [b"chunked"] and request.body == b"hello"
    assert got.all(b"transfer-encoding") == [b"chunked"] and got.body == b"world"


@pytest.mark.acceptance("TRANS-25")
def test_requests_without_a_body_stay_so(stage: Stage) -> None:
    app = stage.answers()
    client = stage.connect()
    for method in METHODS:
        assert client.ask(get(method=method, host=HOST), method).status == 200
    assert [request.start.split(b" ")[0] for request in app.requests] == METHODS
    assert all(b"transfer-encoding" not in lower_names(request) for request in app.requests)


@pytest.mark.acceptance("TRANS-26")
def test_a_length_of_zero_stays(stage: Stage) -> None:
    app = stage.answers(ok(b""))
    client = stage.connect()
    for method in METHODS:
        got = client.ask(post(b"", method=method), method)
        assert got.status == 200 and got.all(b"content-length") == [b"0"]
    assert [request.all(b"content-length") for request in app.requests] == [[b"0"]] * len(METHODS)


@pytest.mark.acceptance("TRANS-27")
@pytest.mark.parametrize(
    ("method", "status"), [(b"HEAD", b"200 OK"), (b"GET", b"204 No Content"), (b"GET", b"304 Not Modified")]
)
def test_responses_that_have_no_body_get_no_framing(stage: Stage, method: bytes, status: bytes) -> None:
    stage.answers(b"HTTP/1.1 %b\r\n\r\n" % status)
    client = stage.connect()
    for _ in range(2):  # a body that was not sent would be waited for
        got = client.ask(get(method=method, host=HOST), method)
        assert got.start == b"HTTP/1.1 " + status and b"transfer-encoding" not in lower_names(got)


@pytest.mark.acceptance("TRANS-28")
def test_what_a_head_says_of_the_length_stays(stage: Stage) -> None:
    stage.answers(b"HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n")
    client = stage.connect()
    got = client.ask(get(method=b"HEAD", host=HOST), b"HEAD")
    assert got.status == 200 and got.all(b"content-length") == [b"55"]
    assert client.is_quiet()


@pytest.mark.acceptance("TRANS-29")
@pytest.mark.parametrize("version", [b"1.0", b"1.1"], ids=["client-1.0", "client-1.1"])
def test_a_body_that_the_end_of_the_connection_ends(stage: Stage, version: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.0 200 OK\r\n\r\nbody till eof")

    stage.play(script)
    got = stage.connect().ask(b"GET / HTTP/%b\r\nHost: %b\r\n\r\n" % (version, HOST))
    assert got.start == b"HTTP/1.0 200 OK" and got.body == b"body till eof"
    assert not lower_names(got) & {b"transfer-encoding", b"content-length"}


# ---- of one topology


@pytest.mark.acceptance("TRANS-30")
@pytest.mark.parametrize("stage", [PAIR], indirect=True)
def test_an_app_that_accepts_nobody(stage: Stage) -> None:
    """The app's port is bound and never listens, so the connection of the app's proxy is refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with stage.topology.way(PAIR, bound.getsockname()[1]) as where, Peer.connect(where) as client:
            assert client.ask(get(host=HOST)).start == b"HTTP/1.1 502 Bad Gateway"


@pytest.mark.acceptance("TRANS-31")
@pytest.mark.parametrize("stage", [IN], indirect=True)
def test_http_1_0_without_a_host(stage: Stage) -> None:
    app = stage.answers(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert stage.connect().ask(b"GET / HTTP/1.0\r\n\r\n").start == b"HTTP/1.0 200 OK"
    (request,) = app.requests
    assert request.start == b"GET / HTTP/1.0" and not request.all(b"host")
