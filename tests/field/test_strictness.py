"""Section 2 of the field log: what a proxy must refuse, and what it must leave alone, in HTTP/1 heads and chunks.

Each payload comes once as the first bytes of a connection and once behind a good request, in front of an app that
notes every byte: what is refused must not reach it. Of heads and chunks one of each row comes here; the whole table is
judged in memory, by `tests/http/test_bad_requests.py`.
"""

from __future__ import annotations

import logging
import re
from statistics import median
from time import thread_time

import pytest

from tests.field.stage import Stage
from tests.http.bad_requests import CHUNKS, HEADS, head, one_of_each_row
from tests.kit.app import Answering
from tests.kit.http1 import Message, chunks, get, ok
from tests.kit.topology import IN, OUT, PAIR, PROXIED, until
from tests.kit.wire import FIN, Peer

FIRST_HOPS = (OUT, IN, PAIR)
"""The ways for refused input. The first proxy refuses it, so HTTP/1 inside mTLS would show nothing new."""


def is_sniffed_as_opaque(payload: bytes) -> bool:
    """Whether the first line is not an HTTP/1 request line: as the first bytes of a connection this is not taken for
    HTTP.
    """
    return re.match(rb"[A-Z]+ [\x21-\x7e\x80-\xff]+ HTTP/1\.[01]\r\n", payload) is None


POSITIONS = [
    pytest.param(case, is_first, id=f"{case}-{'first' if is_first else 'second'}")
    for case in one_of_each_row(HEADS)
    for is_first in (True, False)
    if not (is_first and is_sniffed_as_opaque(HEADS[case]))
]


@pytest.mark.parametrize(("case", "is_first"), POSITIONS)
@pytest.mark.parametrize("stage", FIRST_HOPS, indirect=True)
def test_a_bad_head_is_refused_and_never_reaches_the_app(stage: Stage, case: str, is_first: bool) -> None:
    app = stage.answers()
    client = stage.connect()
    if not is_first:
        assert client.ask(get(b"/good")).status == 200
    client.send(HEADS[case])
    assert client.response().status == 400
    assert client.rest() == b"" and client.end == FIN
    assert [one.target for one in app.requests] == ([] if is_first else [b"/good"])
    assert stage.app.saw.count(b"HTTP/1.") == (0 if is_first else 1)


@pytest.mark.parametrize("case", one_of_each_row(CHUNKS))
@pytest.mark.parametrize("is_split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("stage", FIRST_HOPS, indirect=True)
def test_a_bad_chunk_is_refused_and_the_app_never_sees_the_end_of_its_body(
    stage: Stage, case: str, is_split: bool
) -> None:
    app = stage.answers()
    client = stage.connect()
    request = head(b"Transfer-Encoding: chunked", start=b"POST /bad HTTP/1.1")
    if is_split:
        client.send(request)
        until(lambda: b"\r\n\r\n" in stage.app.saw, "the head reaches the app")
        for index in range(0, len(CHUNKS[case]), 7 if len(CHUNKS[case]) < 100 else 1000):
            size = 7 if len(CHUNKS[case]) < 100 else 1000
            try:
                client.send(CHUNKS[case][index : index + size])
            except OSError:
                break
    else:
        client.send(request + CHUNKS[case])
    assert client.response().status == 400
    assert client.rest() == b"" and client.end == FIN
    assert app.requests == []
    for one in stage.app.connections:
        until(lambda one=one: one.sock.fileno() < 0, "the app's connection ends")  # type: ignore[misc]
    assert b"0\r\n\r\n" not in stage.app.saw.partition(b"\r\n\r\n")[2]


BAD_ANSWERS: dict[str, bytes] = {
    "row13-length-plus": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    "row13-length-underscore": b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n0123456789",
    "row13-length-minus": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "row13-length-huge": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "row14-nul": b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nok",
    "row14-cr": b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b=c\r\nContent-Length: 2\r\n\r\nok",
    "row14-phrase": b"HTTP/1.1 200 O\rK\r\nContent-Length: 2\r\n\r\nok",
    "row19-conflict": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok",
    "row20-twice": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "row20-chunked-parameter": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "row22-no-colon": b"HTTP/1.1 200 OK\r\nFoo\r\nContent-Length: 2\r\n\r\nok",
    "row22-empty-name": b"HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 2\r\n\r\nok",
    "row23-space-in-name": b"HTTP/1.1 200 OK\r\nContent Length: 2\r\n\r\nok",
    "row23-fold": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
    "row25-version": b"HTTP/1.32 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "row25-status": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
    "row25-status-plus": b"HTTP/1.1 +20 OK\r\nContent-Length: 2\r\n\r\nok",
    "row25-status-four": b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
    "row25-garbage": b"whatever this is\r\n\r\n",
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_bad_head_of_an_answer_is_a_bad_gateway(stage: Stage, case: str) -> None:
    stage.answers(lambda request: ok() if request.target == b"/good" else BAD_ANSWERS[case])
    client = stage.connect()
    got = client.ask(get(b"/bad"))
    assert got.status == 502 and not got.all(b"x") and not got.all(b"set-cookie")
    if b"close" not in got.all(b"connection"):
        assert client.ask(get(b"/good")).body == b"ok"


ODD_ANSWERS: dict[str, bytes] = {
    "B15": b"HTTP/1.1 200 OK\r\nX-Foo : yes\r\nContent-Length\t: 2\r\n\r\nok",
    "B16-identity": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nConnection: close\r\n\r\nok",
    "B16-identity-length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok",
    "B16-gzip": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nConnection: close\r\n\r\nok",
    "B16-gzip-chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "B16-204": b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: gzip\r\n\r\n",
    "B16-304": b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: identity\r\n\r\n",
}


@pytest.mark.parametrize("case", ODD_ANSWERS)
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_an_odd_answer_that_has_one_reading_gets_through(stage: Stage, case: str) -> None:
    answer = ODD_ANSWERS[case]

    def script(peer: Peer) -> None:
        while True:
            is_odd = peer.request().target == b"/odd"
            peer.send(answer if is_odd else ok())
            if is_odd and b"Connection: close" in answer:
                return

    stage.play(script)
    client = stage.connect()
    got = client.ask(get(b"/odd"))
    assert got.status == int(answer[9:12]) and got.body == (b"ok" if got.status == 200 else b"")
    assert got.all(b"x-foo") == ([b"yes"] if case == "B15" else [])
    assert got.all(b"content-encoding") == ([b"gzip"] if case.startswith("B16-gzip") else [])
    assert client.ask(get(b"/good")).body == b"ok"


BAD_BODIES: dict[str, bytes] = {
    "row13-size": b"+5\r\nhello\r\n0\r\n\r\n",
    "row13-size-underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
    "row16-extension": b"5;\nxx\r\nhello\r\n0\r\n\r\n",
    "row17-lf": b"5\nhello\r\n0\r\n\r\n",
    "row17-data": b"5\r\nhello\n0\r\n\r\n",
    "row22-trailer": b"5\r\nhello\r\n0\r\nX\r\n\r\n",
}


@pytest.mark.parametrize("case", BAD_BODIES)
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_bad_chunk_of_an_answer_never_makes_a_whole_body(stage: Stage, case: str) -> None:
    stage.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + BAD_BODIES[case])
    client = stage.connect()
    client.send(get())
    got = client.rest()
    assert got.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 502 ")) and not got.endswith(b"0\r\n\r\n")


GOOD_HEADS: dict[str, tuple[bytes, bytes]] = {
    "row13-zeros": (head(b"Content-Length: 0005") + b"hello", b"hello"),
    "row13-spaces": (head(b"Content-Length: \t 5 \t ") + b"hello", b"hello"),
    "row13-no-space": (head(b"Content-Length:5") + b"hello", b"hello"),
    "row13-hex": (head(b"Transfer-Encoding: chunked") + b"0005\r\nhello\r\nA\r\n0123456789\r\n000\r\n\r\n", b"hello0123456789"),
    "row16-extensions": (head(b"Transfer-Encoding: chunked") + b'5;a;b=c;d="e;f"\r\nhello\r\n0;z\r\n\r\n', b"hello"),
    "row19-alike": (head(b"Content-Length: 5", b"Content-Length: 5") + b"hello", b"hello"),
    "row20-upper": (head(b"Transfer-Encoding: CHUNKED") + chunks(b"hello"), b"hello"),
    "row20-spaces": (head(b"Transfer-Encoding: \tchunked \t") + chunks(b"hello"), b"hello"),
    "row23-empty-value": (head(b"X:", b"Y: \t ", b"Content-Length: 5") + b"hello", b"hello"),
    "row26-empty": (head(b"Content-Length: 5", host=b"Host:\r\n") + b"hello", b"hello"),
    "row26-v6": (head(b"Content-Length: 5", host=b"Host: [fd00::1]:80\r\n") + b"hello", b"hello"),
    "row26-upper": (head(b"Content-Length: 5", host=b"HOST: App.NS:80\r\n") + b"hello", b"hello"),
    "row26-last": (head(b"Content-Length: 5", b"Host: app.ns", host=b"") + b"hello", b"hello"),
    "row22-odd-token": (head(b"!#$%&'*+-.^_`|~: x", b"Content-Length: 5") + b"hello", b"hello"),
}  # fmt: skip


@pytest.mark.parametrize("case", GOOD_HEADS)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_what_only_looks_odd_passes(stage: Stage, case: str, is_first: bool) -> None:
    app = stage.answers()
    request, body = GOOD_HEADS[case]
    client = stage.connect()
    if not is_first:
        client.ask(get())
    assert client.ask(request).status == 200
    got = app.requests[-1]
    assert got.body == body
    assert stage.is_direct or b";" not in stage.app.saw.partition(b"\r\n\r\n")[2]


def bare(data: bytes) -> list[bytes]:
    return re.findall(rb"(?<!\r)\n|\r(?!\n)", data)


BARE_LINES: dict[str, bytes] = {
    "all": b"GET /1 HTTP/1.1\nHost: app.ns\nX: 1\n\n",
    "mixed": b"GET /1 HTTP/1.1\r\nHost: app.ns\nX: 1\r\n\n",
    "last": b"GET /1 HTTP/1.1\r\nHost: app.ns\r\nX: 1\n\r\n",
    "first": b"GET /1 HTTP/1.1\nHost: app.ns\r\nX: 1\r\n\r\n",
    "hidden-request": b"GET /1 HTTP/1.1\r\nHost: app.ns\r\nX: 1\r\nUseless:\n\nGET /2 HTTP/1.1\r\nHost: app.ns\r\n\r\n",
}


@pytest.mark.parametrize("case", BARE_LINES, ids=lambda one: f"row14-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_bare_line_feed_ends_a_line_and_is_never_written_on(stage: Stage, case: str) -> None:
    app = stage.answers()
    client = stage.connect()
    for _ in range(2):
        client.send(BARE_LINES[case])
        for _ in range(BARE_LINES[case].count(b"HTTP/1.1")):
            assert client.response().status == 200
    assert not bare(stage.app.saw) and not bare(client.received)
    assert [one.all(b"x") for one in app.requests if one.target == b"/1"] == [[b"1"], [b"1"]]
    assert [one.target for one in app.requests] == re.findall(rb"GET (/\d)", BARE_LINES[case]) * 2


VERSIONS: dict[str, tuple[bytes, int]] = {
    "1.32": (b"GET /v HTTP/1.32", 400),
    "1.": (b"GET /v HTTP/1.", 400),
    "01.1": (b"GET /v HTTP/01.1", 400),
    "1.2": (b"GET /v HTTP/1.2", 505),
    "2.0": (b"GET /v HTTP/2.0", 505),
    "0.9": (b"GET /v HTTP/0.9", 505),
    "2": (b"GET /v HTTP/2", 400),
    "lower": (b"GET /v http/1.1", 400),
    "extra-word": (b"GET /v HTTP/1.1 x", 400),
    "trailing-space": (b"GET /v HTTP/1.1 ", 400),
    "two-spaces": (b"GET  /v HTTP/1.1", 400),
    "tab": (b"GET\t/v HTTP/1.1", 400),
    "no-version": (b"GET /v", 400),
    "only-version": (b"GET HTTP/1.1", 400),
    "quote-in-method": (b'G=" /v HTTP/1.1', 400),
    "bang-as-target": (b"GET ! HTTP/1.1", 400),
    "bracket-method": (b"GE[T /v HTTP/1.1", 400),
    "nul-in-method": (b"G\0T /v HTTP/1.1", 400),
    "leading-space": (b" GET /v HTTP/1.1", 400),
    "lf-inside": (b"GET /v\nHTTP/1.1", 400),
    "htp": (b"GET /v HTP/1.1", 400),
    "icy": (b"GET /v ICY/1.1", 400),
    "digit-in-version": (b"GET /v HTTP/1.1\xc2\xb2", 400),
}


@pytest.mark.parametrize("case", VERSIONS, ids=lambda one: f"row25-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_request_line_is_matched_whole(stage: Stage, case: str) -> None:
    line, status = VERSIONS[case]
    app = stage.answers()
    client = stage.connect()
    client.ask(get(b"/good"))
    client.send(line + b"\r\nHost: app.ns\r\n\r\n")
    got = client.response()
    assert got.status == status and got.start.startswith(b"HTTP/1.1 ")
    if case != "bang-as-target":  # a whole request line, whose target its method may not have: the next is read
        assert client.rest() == b"" and client.end == FIN
    assert [one.target for one in app.requests] == [b"/good"]


@pytest.mark.parametrize("case", ["1.2", "2.0", "1.32", "0.9", "2", "01.1"], ids=lambda one: f"row25-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_as_first_bytes_another_version_is_http_all_the_same(stage: Stage, case: str) -> None:
    """Some servers answer HTTP/1.2 as they answer HTTP/1.1: passed on as bytes, such a request would meet no route."""
    line, status = VERSIONS[case]
    app = stage.answers()
    client = stage.connect()
    client.send(line + b"\r\nHost: app.ns\r\n\r\n")
    assert client.response().status == status
    assert not app.requests and not stage.app.saw


@pytest.mark.parametrize("case", ["lower", "htp"], ids=lambda one: f"row25-{one}")
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_as_first_bytes_another_protocol_passes_as_it_is(stage: Stage, case: str) -> None:
    payload = VERSIONS[case][0] + b"\r\nHost: app.ns\r\n\r\n"

    def script(peer: Peer) -> None:
        peer.send(b"you said " + peer.exactly(len(payload)))

    stage.play(script)
    client = stage.connect()
    client.send(payload)
    assert client.rest() == b"you said " + payload
    assert stage.app.saw == payload


PASSING = [
    rb"/a?x=1%\7Cf", "/caf\u00e9".encode(), b"/\xff\xfe", b'/"', b"/{}", b"/^", b"/a|b", b"/`", b"/<>", b"/a\\b", b"/[x]",
    b"/%", b"/%zz", b"/#fragment", b"/hello?x=R%26D", b"/a%2Fb", b"/a/../b", b"//x", b"/%2e%2e/", b"/;p?", b"/!",
    b"/?", b"/??", b"/a//b/./c", b"/%00", b"/%0d%0aX:1", b"/~a:b@c", b"/a+b%20c",
]  # fmt: skip


@pytest.mark.parametrize("target", PASSING, ids=lambda one: f"row28-29-{one!r}")
def test_targets_pass_byte_for_byte_in_either_position(stage: Stage, target: bytes) -> None:
    app = stage.answers()
    first = stage.connect()
    second = stage.connect()
    second.ask(get(b"/good"))
    app.requests.clear()
    assert [first.ask(get(target)).status, second.ask(get(target)).status] == [200, 200]
    assert [one.start for one in app.requests] == [b"GET %b HTTP/1.1" % target] * 2


@pytest.mark.parametrize(
    "target",
    [b"products", b"a:b", b"*", b"?x", b"app.ns:80", b"http://", b"http:///x", b"://x"],
    ids=lambda one: f"row28-{one!r}",
)
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_target_that_its_method_cannot_have_is_refused_in_either_position(
    stage: Stage, target: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    app = stage.answers()
    first = stage.connect()
    second = stage.connect()
    second.ask(get(b"/good"))
    for client in (first, second):
        assert client.ask(get(target)).status == 400
        assert client.ask(get(b"/next")).status == 200
    assert [one.target for one in app.requests] == [b"/good", b"/next", b"/next"]
    assert f"Request refused with 400: GET cannot have the target {target!r}" in caplog.messages


@pytest.mark.parametrize(
    "line",
    [
        b"GET /a b HTTP/1.1",
        b"GET  /a HTTP/1.1",
        b"GET\t/a HTTP/1.1",
        b"GET /a HTTP/1.1 ",
        b"PUT /\x01 HTTP/1.1",
        b"GET HTTP/1.1",
    ],
    ids=lambda one: f"row28-{one!r}",
)
@pytest.mark.parametrize("stage", PROXIED, indirect=True)
def test_a_request_line_that_cannot_be_read_is_refused_in_either_position(
    stage: Stage, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    app = stage.answers()
    first = stage.connect()
    second = stage.connect()
    second.ask(get(b"/good"))
    for client in (first, second):
        assert client.ask(line + b"\r\nHost: app.ns\r\n\r\n").status == 400
        assert client.rest() == b"" and client.end == FIN
    assert [one.target for one in app.requests] == [b"/good"]
    assert f"Request refused with 400: bad request line: {line!r}" in caplog.messages


CASED = [
    b"X-MiXeD-Case: 1", b"x-lower: 2", b"X-UPPER: 3", b"X-Twice: a", b"Accept:*/*", b"X-Twice: b", b"x-twice: c", b"Cookie: a=1", b"Cookie: b=2",
]  # fmt: skip
ANSWERED = [
    b"Location: /There?x=%7c", b"Set-Cookie: a=1; Path=/", b"X-Between: 1", b"Set-Cookie: b=2", b"SET-COOKIE: c=3", b"eTag: W/\"x\"",
    b"WWW-Authenticate: Basic", b"WWW-Authenticate: Digest",
]  # fmt: skip


def test_case_order_and_duplicates_of_fields_stay(stage: Stage) -> None:
    """Row 31: names keep their case, order and duplicates. Inside HTTP/2 between proxies names are in lower case;
    order and duplicates are kept there too.
    """
    app = stage.answers(ok(b"ok", *ANSWERED))
    client = stage.connect()
    for _ in range(2):
        got = client.ask(get(b"/", *CASED))

        def kept(message: Message, wanted: list[bytes]) -> list[bytes]:
            names = {one.partition(b":")[0].lower() for one in wanted}
            return [name + b":" + value for name, value in message.fields if name.lower() in names]

        def want(lines: list[bytes]) -> list[bytes]:
            pairs = [one.partition(b":") for one in lines]
            return [(name.lower() if stage.is_pair else name) + b":" + value.strip() for name, _, value in pairs]

        assert kept(app.requests[-1], CASED) == want(CASED)
        assert kept(got, ANSWERED) == want(ANSWERED)
        if not stage.is_pair:
            assert b"Content-Length: 2\r\n" in client.received and b"Host: app.ns\r\n" in stage.app.saw


@pytest.mark.parametrize("stage", [OUT, IN, PAIR], indirect=True)
def test_a_request_costs_the_same_whatever_its_host(stage: Stage) -> None:
    """Row 32: a request costs the same whatever its Host is. There are 40 connections per Host instead of 1,000; medians
    are compared by order of magnitude. The cost is the proxies' own CPU time, which a busy machine does not lengthen; that
    nothing is waited for is seen by the deadline of `ask`.
    """
    app: Answering = stage.answers()
    took: dict[bytes, list[float]] = {}
    hosts = [b"app.ns", b"127.0.0.1", b"", b"unknown.example", b"Unknown-%d.example"]
    for turn in range(40):
        for host in hosts:
            name = host % turn if b"%" in host else host
            began = stage.topology.call(thread_time)
            with Peer.connect(stage.where) as client:
                assert client.ask(get(host=name)).status == 200
            took.setdefault(host, []).append(stage.topology.call(thread_time) - began)
    known = median(took[b"app.ns"])
    assert all(median(took[host]) < 3 * known + 0.001 for host in hosts), {h: median(t) for h, t in took.items()}
    assert len(app.requests) == 40 * len(hosts)
