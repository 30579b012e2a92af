"""Messages that two recipients could read differently are refused, or rewritten so that all recipients agree.

Rows B10, B11, B12, B13, B15 and B16 of the list in docs/testing.md, with their siblings, on the codecs alone.
"""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from proxy.http import headers
from proxy.http.exchange import Exchange
from proxy.http.fields.upgrades import is_asked_for, names_http
from proxy.http.h1.head import write_request
from proxy.http.h1.server import H1Server
from proxy.http.head import ResponseHead
from proxy.http.headers import DROPPED, L5D, PLAIN, field, field_of_line, is_authority
from tests.http.h1.test_playbooks import GET, OK, play
from tests.http.h2.kit import GET as H2_GET
from tests.http.h2.kit import Client, raw, reset_codes
from tests.kit import ListWire
from tests.kit.compare import dechunked
from tests.kit.playbook import Matcher

CONNECT = b"CONNECT svc:80 HTTP/1.1\r\nHost: svc:80\r\n"
CLOSED = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nConnection: close\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: svc\r\n\r\n"


# ---- B10: a CONNECT has no body


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: %d" % len(SMUGGLED), b"Content-Length: 0", b"Transfer-Encoding: chunked", b"transfer-encoding: identity"],
)  # fmt: skip
def test_a_connect_that_promises_a_body_is_refused_and_its_connection_ends(framing: bytes) -> None:
    with play() as it:
        it.feed("client", CONNECT + framing + b"\r\n\r\n" + SMUGGLED).expect("client", CLOSED).ended("client")


@pytest.mark.parametrize("status", [b"405 Method Not Allowed", b"200 OK", b"302 Found"])
def test_no_connection_that_carried_a_connect_is_used_again(status: bytes) -> None:
    """Bytes that follow the CONNECT do not reach the app either, unless the app answered 2xx: then they belong to the
    tunnel.
    """
    is_tunnel = status.startswith(b"200")
    with play() as it:
        it.feed("client", CONNECT + b"\r\n" + SMUGGLED).expect("app", CONNECT + b"\r\n")
        if is_tunnel:
            it.feed("app", b"HTTP/1.1 200 OK\r\n\r\n").expect("client", b"HTTP/1.1 200 OK\r\n\r\n")
            it.expect("app", SMUGGLED)
        else:
            answer = b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n"
            it.feed("app", answer + b"\r\n").ended("app")
            it.expect("client", answer + b"Connection: close\r\n\r\n").ended("client")


def test_what_follows_a_connect_that_is_refused_at_once_is_no_request() -> None:
    asked: list[bytes] = []

    class Refusing:
        def dispatch(self, exchange: Exchange) -> None:
            asked.append(exchange.request.method)
            exchange.reply(ResponseHead(403, [field(b"content-length", b"0")], 0), Reason.COMPLETE)

    wire = ListWire()
    H1Server(wire, Refusing(), lambda: 0.0).feed(CONNECT + b"\r\n" + SMUGGLED)
    assert asked == [b"CONNECT"]
    assert wire.take().endswith(b"\r\nConnection: close\r\n\r\n")


def test_a_101_is_no_answer_to_a_connect() -> None:
    with play() as it:
        it.feed("client", CONNECT + b"\r\n").expect("app", CONNECT + b"\r\n")
        it.feed("app", b"HTTP/1.1 101 Switching Protocols\r\n\r\n").aborted("app", Reason.PROTOCOL_ERROR)
        it.expect("client", b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")


H2_CONNECT = [(b":method", b"CONNECT"), (b":authority", b"svc:80")]
WEBSOCKET = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), *H2_GET[1:]]


@pytest.mark.parametrize("fields", [H2_CONNECT, WEBSOCKET])
@pytest.mark.parametrize("length", [b"0", b"38"])
def test_an_http_2_connect_with_a_length_is_refused(fields: list[tuple[bytes, bytes]], length: bytes) -> None:
    client = Client()
    got = client.head(1, [*fields, (b"content-length", length)], end=False)
    assert client.decoder.decode(got[0].payload)[0] == (":status", "400")
    client.send(raw(0, 0, 1, SMUGGLED))
    assert not client.stage.exchanges and not client.server.streams


# ---- B11: no tunnel in which HTTP goes on

OFFERS = [
    b"foo, h2c", b"h2c, foo", b"h2c,", b",h2c", b"h2c/1.0", b"H2C", b"h2", b"h2c-14", b"HTTP/2.0", b"TLS/1.0, foo", b"foo\r\nUpgrade: h2c",
    b"h2c\r\nUpgrade: foo", b"h2c\r\nUpgrade: h2c", b"foo,\th2c \t,bar", b"bar h2c", b"h2c;q=1, foo", b'foo, "h2c"',
]  # fmt: skip


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("named", [b"Connection: Upgrade, HTTP2-Settings\r\n", b"Connection: upgrade\r\n", b""])
def test_http_is_never_offered_as_a_protocol_to_upgrade_to(offer: bytes, named: bytes) -> None:
    asked = (
        b"GET / HTTP/1.1\r\nHost: svc\r\n" + named + b"HTTP2-Settings: AAMAAABkAAQ\r\nUpgrade: " + offer + b"\r\n\r\n"
    )

    def arrives(data: bytes) -> bool:
        said = data.lower()
        assert b"h2" not in said and b"tls" not in said and b"http2-settings" not in said and b"http/2" not in said
        return (b"foo" in said) == (b"foo" in offer)

    with play() as it:
        it.feed("client", asked).expect("app", arrives).feed("app", OK).expect("client", OK)


@pytest.mark.parametrize("answered", [b"h2c", b"foo, h2c", b"HTTP/2.0", b"other", b"TLS/1.2, HTTP/1.1"])
def test_a_101_to_another_protocol_is_no_tunnel(answered: bytes) -> None:
    asked = b"GET / HTTP/1.1\r\nHost: svc\r\nUpgrade: foo\r\nConnection: Upgrade\r\n\r\n"
    with play() as it:
        it.feed("client", asked + SMUGGLED).expect("app", asked)
        it.feed("app", b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + answered + b"\r\n\r\n")
        it.aborted("app", Reason.PROTOCOL_ERROR)
        it.expect("client", b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n").expect("app2", SMUGGLED)


@pytest.mark.parametrize("protocol", [b"h2c", b"H2C", b"h2", b"h2c-14", b"http", b"tls"])
def test_extended_connect_to_http_is_refused(protocol: bytes) -> None:
    client = Client()
    got = client.head(1, [(b":method", b"CONNECT"), (b":protocol", protocol), *H2_GET[1:]], end=False)
    assert client.decoder.decode(got[0].payload)[0] == (":status", "501")
    assert not client.stage.exchanges


def test_http2_settings_is_not_passed_on_from_http_2() -> None:
    client = Client()
    client.head(1, [*H2_GET, (b"http2-settings", b"AAMAAABkAAQ"), (b"x", b"y")])
    assert [one.name for one in client.stage.sinks[0].head.fields] == [b"x"]


def test_which_protocols_are_http() -> None:
    assert all(map(names_http, (b"h2", b"h2c", b"H2C/1", b"h3", b"http", b"HTTP/1.1", b"h2-14", b"tls", b"TLS/1.2")))
    assert not any(map(names_http, (b"websocket", b"h2csomething", b"tcp", b"httpx", b"spdy/3", b"h4", b"")))
    assert is_asked_for(b"WebSocket", b"foo, websocket/13") and is_asked_for(b"", b"foo")
    assert not is_asked_for(b"", b"") and not is_asked_for(b"foo, bar", b"foo")


# ---- B12: policy and app see the same host


def test_host_follows_the_target_of_a_connect_too() -> None:
    with play() as it:
        it.feed("client", b"CONNECT svc:80 HTTP/1.1\r\nHost: admin\r\n\r\n")
        it.expect("app", b"CONNECT svc:80 HTTP/1.1\r\nHost: svc:80\r\n\r\n")


def test_a_connect_whose_host_leaves_the_port_out_goes_on_as_it_came() -> None:
    asked = b"CONNECT svc:80 HTTP/1.1\r\nHost: SVC\r\n\r\n"
    with play() as it:
        it.feed("client", asked).expect("app", asked)


@pytest.mark.parametrize("mark", [b"HTTP/1.1", b"HTTP/1.1; absolute-form", b"HTTP/1.0"])
def test_a_carried_request_names_one_host(mark: bytes) -> None:
    client = Client()
    client.head(1, [*H2_GET, (b"host", b"admin"), (b"l5d-orig-proto", mark)])
    head = client.stage.sinks[0].head
    assert head.authority == b"svc" and [one.value for one in head.fields if one.name == b"host"] == [b"svc"]
    assert b"admin" not in write_request(head)


@pytest.mark.parametrize(
    "mark", [b"HTTP/1.2", b"HTTP/1.1;absolute-form", b"HTTP/1.1 ", b"http/1.1", b"HTTP/1.15", b"x"]
)
def test_another_mark_excuses_no_second_host(mark: bytes) -> None:
    client = Client()
    got = client.head(1, [*H2_GET, (b"host", b"admin"), (b"l5d-orig-proto", mark.strip() + b"!")])
    assert client.decoder.decode(got[0].payload)[0] == (":status", "400") and not client.stage.exchanges


@pytest.mark.parametrize(
    "authority",
    [b"%61dmin", b"admin%2e", b"u@admin", b":80", b"[admin]", b"[::1", b"::1", b"a,b", b"a b", b"a/b", b"a:80:80", b"a:x", b"\xc3\xa4", b"[1.2.3.4]"],
)  # fmt: skip
def test_an_authority_that_is_read_in_two_ways_is_none(authority: bytes) -> None:
    assert is_authority(authority) is None
    with play() as it:
        it.feed("client", b"GET / HTTP/1.1\r\nHost: " + authority + b"\r\n\r\n").expect("client", CLOSED).ended(
            "client"
        )
    client = Client()
    client.head(1, [*H2_GET[:2], (b":authority", authority), H2_GET[3]])
    client.head(3, [*H2_GET[:2], H2_GET[3], (b"host", authority)])
    assert not client.stage.exchanges


@pytest.mark.parametrize(
    "authority", [b"", b"a", b"A.b.", b"a:", b"a:80", b"1.2.3.4:5", b"[::1]:80", b"[fe80::1%25eth0]", b"a_b"]
)
def test_these_are_authorities(authority: bytes) -> None:
    assert is_authority(authority) is not None


# ---- B13: names that a CGI-like app reads as the mesh's own


def cgi(name: bytes) -> str:
    """The name under which WSGI, Rack, PHP and Apache present a field: every octet that is neither letter nor digit is
    an underscore.
    """
    return "HTTP_" + "".join(one if one.isalnum() else "_" for one in name.decode().upper())


LOOKALIKES = [
    b"l5d_client_id",
    b"l5d-client_id",
    b"l5d_client-id",
    b"L5d.Client.Id",
    b"l5d~client!id",
    b"l5d-client.id",
    b"l5d_orig_proto",
]


@pytest.mark.parametrize("name", LOOKALIKES)
def test_no_other_spelling_of_the_meshs_names_passes(name: bytes) -> None:
    assert cgi(name) in ("HTTP_L5D_CLIENT_ID", "HTTP_L5D_ORIG_PROTO")
    chunked = b"POST / HTTP/1.1\r\nHost: svc\r\n%bTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n%b\r\n"
    line = name + b": boss\r\n"
    with play() as it:
        it.feed("client", chunked % (line, line)).expect("app", lambda data: b"boss" not in data and b"l5d" not in data)
    client = Client()
    client.head(1, [*H2_GET, (name.lower(), b"boss")], end=False)
    client.send(raw(1, 5, 1, client.encoder.encode([(name.lower(), b"boss")])))
    assert not client.stage.sinks[0].head.fields and not client.stage.sinks[0].trailers


def test_which_names_are_the_meshs_and_which_only_look_so() -> None:
    kinds = {
        b"l5d-client-id": L5D,
        b"l5d-": L5D,
        b"l5d-dst-canonical": L5D,
        b"l5d_x": DROPPED,
        b"l5d-a.b": DROPPED,
        b"l5d": PLAIN,
        b"l5dx_y": PLAIN,
    }
    for name, kind in kinds.items():
        assert field_of_line(name + b": x").kind == kind == headers.kind_of(name, b"x"), name


# ---- B15, B16: answers that RFC 9112 lets us understand


@pytest.mark.parametrize("space", [b" ", b"\t", b" \t "])
def test_space_before_a_colon_in_an_answer_is_taken_out(space: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nX-Foo%b: yes\r\nContent-Length%b: 2\r\n\r\nok"
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", answer % (space, space)).expect(
            "client", answer % (b"", b"")
        )
        it.feed("client", GET).expect("app", GET).feed("app", OK).expect("client", OK)


def test_space_before_a_colon_in_the_trailers_of_an_answer_is_taken_out() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n1\r\nx\r\n0\r\nX-Sum : 9\r\n\r\n"
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", answer)
        it.expect("client", lambda data: data.endswith(b"0\r\nX-Sum: 9\r\n\r\n"))


@pytest.mark.parametrize("line", [b"X-Foo : yes", b"Content-Length : 0", b"Transfer-Encoding : chunked"])
def test_space_before_a_colon_in_a_request_is_refused(line: bytes) -> None:
    with play() as it:
        it.feed("client", b"POST / HTTP/1.1\r\nHost: svc\r\n" + line + b"\r\n\r\n").expect("client", CLOSED).ended(
            "client"
        )


UNTIL_CLOSE = [b"identity", b"gzip", b"chunked, gzip", b"x-foo;q=1", b"", b",", b"identity\r\nTransfer-Encoding: gzip"]
CHUNKED = [
    b"gzip, chunked",
    b"identity, chunked",
    b"chunked, identity",
    b"gzip\r\nTransfer-Encoding: chunked",
    b"chunked,",
    b"CHUNKED",
]


@pytest.mark.parametrize("codings", UNTIL_CLOSE)
def test_an_answer_whose_last_coding_is_not_chunked_is_read_until_close(codings: bytes) -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET)
        it.feed("app", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + codings + b"\r\n\r\n1\r\nx").eof("app").ended("app")
        it.expect("client", body_is("1\r\nx", codings))


@pytest.mark.parametrize("codings", CHUNKED)
def test_an_answer_whose_last_coding_is_chunked_is_read_by_its_chunks(codings: bytes) -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET)
        it.feed("app", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + codings + b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        it.expect("client", body_is("abc", codings))
        if codings.lower() != b"chunked":
            it.ended("app").feed("client", GET).expect("app2", GET)  # an app that says such things may mean others
        else:
            it.feed("client", GET).expect("app", GET)


def body_is(body: str, codings: bytes) -> Matcher:
    def check(data: bytes) -> bool:
        head, _, rest = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n") and head.lower().count(b"transfer-encoding") == 1
        assert b"Transfer-Encoding: chunked" in head and dechunked(rest.decode()) == (body, [], "")
        assert (b"content-encoding: gzip" in head) == (b"gzip" in codings), "what the body is coded by stays known"
        return True

    return check


@pytest.mark.parametrize(
    "codings",
    [
        b"chunked, chunked",
        b"chunked\r\nTransfer-Encoding: chunked",
        b"chunked;a=b",
        b"xchunked",
        b'"chunked"',
        b"chun ked",
        b"gzip, \x80",
    ],
)
def test_an_answer_that_nobody_can_tell_the_end_of_is_a_502(codings: bytes) -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET)
        it.feed("app", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + codings + b"\r\n\r\n0\r\n\r\n").aborted(
            "app", Reason.PROTOCOL_ERROR
        )
        it.expect("client", b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")


def test_identity_leaves_the_length_to_content_length() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok"
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed("app", answer).ended("app").expect("client", OK)


@pytest.mark.parametrize("codings", [b"identity", b"gzip", b"gzip, chunked", b"chunked, chunked", b'"x"'])
@pytest.mark.parametrize(
    ("method", "status"), [(b"HEAD", b"200 OK"), (b"GET", b"204 No Content"), (b"GET", b"304 Not Modified")]
)
def test_without_a_body_the_codings_decide_nothing(codings: bytes, method: bytes, status: bytes) -> None:
    asked = method + b" /a HTTP/1.1\r\nHost: svc\r\n\r\n"
    with play() as it:
        it.feed("client", asked).expect("app", asked)
        it.feed("app", b"HTTP/1.1 " + status + b"\r\nTransfer-Encoding: " + codings + b"\r\n\r\n").ended("app")
        it.expect("client", b"HTTP/1.1 " + status + b"\r\n\r\n")
        it.feed("client", GET).expect("app2", GET).feed("app2", OK).expect("client", OK)


@pytest.mark.parametrize("line", [b"Transfer-Encoding: chunked", b"Content-Length: 5"])
def test_a_204_that_promises_a_body_is_the_last_answer_of_its_connection(line: bytes) -> None:
    with play() as it:
        it.feed("client", GET).expect("app", GET).feed(
            "app", b"HTTP/1.1 204 No Content\r\n" + line + b"\r\n\r\n"
        ).ended("app")
        it.expect("client", b"HTTP/1.1 204 No Content\r\n\r\n").feed("client", GET).expect("app2", GET)


def test_a_request_that_says_anything_but_chunked_is_refused() -> None:
    for value in (b"identity", b"gzip, chunked", b"chunked, identity", b"chunked, chunked"):
        with play() as it:
            it.feed("client", b"POST / HTTP/1.1\r\nHost: svc\r\nTransfer-Encoding: " + value + b"\r\n\r\n0\r\n\r\n")
            it.expect("client", CLOSED).ended("client")


def test_a_length_that_is_none_is_malformed_not_only_refused() -> None:
    client = Client()
    assert reset_codes(client.head(1, [*H2_CONNECT, (b"content-length", b"+5")], end=False)) == {1: 1}
