"""What the admin port answers, compared with the recordings and with the rules of each endpoint."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from proxy.admin import AdminStage
from proxy.core import limits
from proxy.core.address.addr import addr
from proxy.core.failure.reason import Reason
from proxy.http.ending.linger import Linger
from proxy.http.h1.server import H1Server
from proxy.metrics import Registry
from tests.admin.kit import REMOTE, AdminServer
from tests.kit import Clock, ListWire
from tests.kit.environment import DATA

RECORDED = json.loads((DATA / "admin.json").read_text())


def as_recorded(answer: bytes) -> str:
    """An answer in the recording's form: with its line ends, and without a date that differs."""
    head, _, body = answer.partition(b"\r\n\r\n")
    text = re.sub(r"(?m)^date: .*$", "date: DATE", head.decode().replace("\r\n", "\n"))
    return f"{text}\n\n{body.decode()}"


def raw(line: str, body: bytes = b"") -> bytes:
    length = f"content-length: {len(body)}\r\n" if body else ""
    return f"{line} HTTP/1.1\r\nhost: localhost:4191\r\n{length}\r\n".encode() + body


@pytest.mark.parametrize(
    ("case", "request_bytes"),
    [
        ("GET /live", raw("GET /live")),
        ("GET /ready", raw("GET /ready")),
        ("HEAD /ready", raw("HEAD /ready")),
        ("GET /", raw("GET /")),
        ("GET /nothing", raw("GET /nothing")),
        ("GET /shutdown", raw("GET /shutdown")),
        ("POST /shutdown", raw("POST /shutdown")),
        ("DELETE /logs.json?info", raw("DELETE /logs.json?info")),
        ("GET /proxy-log-level", raw("GET /proxy-log-level")),
        ("PUT /proxy-log-level info", raw("PUT /proxy-log-level", b"info")),
        ("PUT /proxy-log-level bad", raw("PUT /proxy-log-level", b"===")),
    ],
)
def test_as_recorded(case: str, request_bytes: bytes) -> None:
    answer = as_recorded(AdminServer(shut_down=lambda: True).http1(request_bytes))
    assert answer.replace("allow: POST\n", "") == RECORDED[case]  # Linkerd's 405 for /shutdown does not name the method


def test_a_changed_log_level_reads_back_as_recorded() -> None:
    server = AdminServer()
    assert server.ask("PUT /proxy-log-level", body=b"warn,linkerd=debug")[0] == 204
    assert as_recorded(server.http1(raw("GET /proxy-log-level"))) == RECORDED["GET /proxy-log-level after"]


def test_env_json_as_recorded_but_for_the_order() -> None:
    server = AdminServer(env={"LINKERD2_PROXY_CORES": "1", "OTHER": "x"})
    head, _, body = as_recorded(server.http1(raw("GET /env.json?LINKERD2_PROXY_CORES&NOPE"))).partition("\n\n")
    wanted_head, _, wanted = RECORDED["GET /env.json?LINKERD2_PROXY_CORES&NOPE"].partition("\n\n")
    assert head == wanted_head and json.loads(body) == json.loads(wanted)


def test_from_another_address() -> None:
    server = AdminServer(shut_down=lambda: pytest.fail("reached from outside"))
    forbidden = RECORDED["from another address POST /shutdown"]
    assert as_recorded(server.http1(raw("POST /shutdown"), REMOTE)) == forbidden
    for line in ("GET /proxy-log-level", "PUT /proxy-log-level", "DELETE /proxy-log-level"):
        assert as_recorded(server.http1(raw(line, b"info"), REMOTE)) == forbidden
    assert str(server.log.filter) == "_access_log=off,linkerd=info,warn"
    for path in ("/live", "/ready", "/metrics", "/env.json"):
        assert server.ask(f"GET {path}", peer=REMOTE)[0] == 200
    assert server.ask("GET /shutdown", peer=REMOTE)[0] == 405  # the method is judged before the address


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.8.8.8", "::1"])
def test_loopback_is_any_of_it(ip: str) -> None:
    assert AdminServer().ask("GET /proxy-log-level", peer=addr(ip, 1))[0] == 200
    assert AdminServer().ask("GET /proxy-log-level", peer=addr("::ffff:127.0.0.1", 1))[0] == 200


@pytest.mark.acceptance("ENVJ-07")
def test_ready_when_the_last_latch_is_released() -> None:
    server = AdminServer()
    one, other = server.readiness.latch("certificate"), server.readiness.latch("other")
    assert server.ask("GET /ready") == (503, {"content-length": "10"}, b"not ready\n")
    one.release()
    one.release()
    assert server.ask("GET /ready")[0] == 503
    other.release()
    assert server.ask("GET /ready") == (200, {"content-type": "text/plain", "content-length": "6"}, b"ready\n")


def test_ready_says_what_a_person_should_know() -> None:
    server = AdminServer()
    server.readiness.details = lambda: ["policy controller x:1 has not answered for 12s (3 streams)"]
    expected = b"ready\npolicy controller x:1 has not answered for 12s (3 streams)\n"
    status, _, body = server.ask("GET /ready")
    assert (status, body) == (200, expected)


@pytest.mark.acceptance("ENVJ-01")
def test_env_json_shows_what_configures_the_proxy() -> None:
    names = ("LINKERD2_PROXY_LOG", "SPONSON_LOG", "LINKERD2_PROXY_IDENTITY_TOKEN_FILE", "OTEL_RESOURCE_ATTRIBUTES")
    env = dict(zip(names, ("1", "two words", 'quote"\n', "bad \udcff byte"), strict=True))
    status, fields, body = AdminServer(env=env).ask("GET /env.json")
    assert (status, fields["content-type"]) == (200, "application/json")
    assert json.loads(body) == {**env, "OTEL_RESOURCE_ATTRIBUTES": "bad \ufffd byte"}


@pytest.mark.acceptance("ENVJ-02")
def test_env_json_shows_exactly_the_names_asked_for() -> None:
    server = AdminServer(env={"SPONSON_REAL": "1", "SPONSON_OTHER": "2"})
    assert json.loads(server.ask("GET /env.json?SPONSON_REAL&FAKE")[2]) == {"SPONSON_REAL": "1", "FAKE": None}


def test_env_json_shows_nothing_else_of_the_environment_and_no_secret() -> None:
    hidden = {
        "PATH": "/bin",
        "AWS_SECRET_ACCESS_KEY": "s3cr3t",
        "XSPONSON_LOG": "debug",
        "SPONSON_API_TOKEN": "s3cr3t",
        "LINKERD2_PROXY_TLS_KEY": "s3cr3t",
        "SPONSON_PASSWORD": "s3cr3t",
        "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS": "-----BEGIN EC PRIVATE KEY-----\ns3cr3t",
    }
    kept = {"LINKERD2_PROXY_OUTBOUND_CONNECT_KEEPALIVE": "10s", "SPONSON_IDENTITY_TRUST_ANCHORS_FILE": "/ca.crt"}
    server = AdminServer(env={**hidden, **kept})
    assert json.loads(server.ask("GET /env.json")[2]) == kept
    for name in hidden:
        assert json.loads(server.ask(f"GET /env.json?{name}")[2]) == {name: None}


@pytest.mark.parametrize(
    ("line", "fields", "status", "body"),
    [
        (
            "GET /env.json?A=1",
            (),
            400,
            b'{"error":"env.json query parameters may not contain key-value pairs","status":400}',
        ),
        ("GET /env.json", ("accept: text/html",), 406, b"application/json"),
        ("GET /env.json", ("accept: \xff",), 400, b'{"error":"Accept header must be UTF-8","status":400}'),
        ("GET /env.json", ("accept: text/html, application/*;q=0.1",), 200, b"{}"),
        ("GET /env.json", ("accept: */*",), 200, b"{}"),
        ("POST /env.json", (), 405, b""),
    ],
)
def test_env_json_refuses(line: str, fields: tuple[str, ...], status: int, body: bytes) -> None:
    found = AdminServer().ask(line, *fields)
    assert (found[0], found[2]) == (status, body)


@pytest.mark.acceptance("TELE-33")
@pytest.mark.parametrize("accept", ["gzip", "deflate, gzip", "gzip,deflate", "brotli,gzip,deflate", "gzip;q=0.5"])
def test_metrics_are_compressed_for_who_says_gzip(accept: str) -> None:
    registry = Registry(Clock())
    scope = registry.requests("", (("direction", "inbound"),))
    server = AdminServer()
    server.page = registry.render
    for count in (1, 2):
        scope.response_began(200, 0.001)
        scope.ended(200, True)
        status, fields, body = server.ask("GET /metrics", f"accept-encoding: {accept}")
        assert (status, fields["content-type"], fields["content-encoding"]) == (200, "text/plain", "gzip")
        page = gzip.decompress(body).decode()
        assert f'response_latency_ms_count{{direction="inbound",status_code="200"}} {count}\n' in page


def test_metrics_are_plain_for_who_does_not() -> None:
    status, fields, body = AdminServer().ask("GET /metrics", "accept-encoding: br")
    assert (status, fields, body) == (200, {"content-type": "text/plain", "content-length": "6"}, b"# EOF\n")
    assert AdminServer().ask("GET /metrics?x")[0] == 200  # the query does not matter


@pytest.mark.parametrize(
    "accept",
    [
        "gzip;q=0",
        "gzip; q=0.000, br",
        "gzip;q=0, *",
        "*;q=0",
        "br, gzip;q=0",
        "identity",
        "xgzip",
        "gzip;q=",
        "x;a=gzip",
        "",
    ],
)
def test_a_no_to_gzip_is_heard(accept: str) -> None:
    """Row B28: a client that refuses gzip gets no gzip."""
    status, fields, body = AdminServer().ask("GET /metrics", f"accept-encoding: {accept}")
    assert (status, fields, body) == (200, {"content-type": "text/plain", "content-length": "6"}, b"# EOF\n")


@pytest.mark.parametrize(
    "accept", ["gzip", "GZIP;q=0.5", "br;q=0, gzip", "*", "deflate, *;q=0.1", "x-gzip", "gzip;q=1.000;x=y"]
)
def test_a_yes_to_gzip_is_heard(accept: str) -> None:
    assert AdminServer().ask("GET /metrics", f"accept-encoding: {accept}")[1]["content-encoding"] == "gzip"


@pytest.mark.parametrize("path", ["/live", "/ready", "/metrics", "/live?x"])
@pytest.mark.parametrize("method", ["TRACE", "DELETE", "POST", "PUT", "OPTIONS", "get", "BREW"])
def test_pages_are_only_read(method: str, path: str) -> None:
    """Row B28: pages can only be read; other methods are refused."""
    status, fields, body = AdminServer().ask(f"{method} {path}")
    assert (status, fields, body) == (405, {"allow": "GET, HEAD", "content-length": "0"}, b"")


@pytest.mark.parametrize(("path", "allowed"), [("/shutdown", "POST"), ("/env.json", "GET")])
@pytest.mark.parametrize("method", ["TRACE", "DELETE", "HEAD", "PUT", "PATCH", "post"])
def test_every_page_names_the_methods_that_it_has(method: str, path: str, allowed: str) -> None:
    """Row B28: a 405 without Allow is none (RFC 9110, section 15.5.6)."""
    status, fields, _ = AdminServer(shut_down=lambda: True).ask(f"{method} {path}")
    assert (status, fields["allow"]) == (405, allowed)


@pytest.mark.parametrize(
    ("host", "origin", "is_done"),
    [
        ("localhost:4191", None, True),
        ("LOCALHOST", None, True),
        ("localhost.:4191", None, True),
        ("127.0.0.1:4191", None, True),
        ("10.0.0.1", None, True),
        ("[::1]:4191", None, True),
        ("127.0.0.1:4191", "http://127.0.0.1:4191", True),
        ("127.0.0.1:4191", "http://127.0.0.1:80", False),
        ("127.0.0.1:4191", "https://127.0.0.1:4191", False),
        ("127.0.0.1:4191", "http://evil.example", False),
        ("127.0.0.1:4191", "null", False),
        ("127.0.0.1:4191", "", False),
        ("evil.example", None, False),
        ("evil.example:4191", "http://evil.example:4191", False),
        ("localhost.evil.example", None, False),
        ("127.0.0.1.evil.example", None, False),
    ],
)
def test_a_web_page_changes_nothing(host: str, origin: str | None, is_done: bool) -> None:
    """Row B31: any web page can make a browser on this machine send such a request, and by DNS rebinding under a name
    of its own. It must change nothing.
    """
    told: list[bool] = []

    def shut_down() -> bool:
        told.append(True)
        return True

    server = AdminServer(shut_down=shut_down)
    fields = f"host: {host}\r\n" + ("" if origin is None else f"origin: {origin}\r\n")
    refusal = b"HTTP/1.1 403 Forbidden\r\n"
    answer = server.http1(f"POST /shutdown HTTP/1.1\r\n{fields}\r\n".encode())
    assert (told == [True], not answer.startswith(refusal)) == (is_done, is_done)
    before = str(server.log.filter)
    answer = server.http1(f"PUT /proxy-log-level HTTP/1.1\r\n{fields}content-length: 5\r\n\r\ntrace".encode())
    assert (str(server.log.filter) != before, not answer.startswith(refusal)) == (is_done, is_done)
    answer = server.http1(f"GET /proxy-log-level HTTP/1.1\r\n{fields}\r\n".encode())
    assert (b"trace" in answer) == is_done
    assert server.http1(f"GET /live HTTP/1.1\r\n{fields}\r\n".encode()).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_page_that_cannot_be_made_is_an_answer_of_its_own() -> None:
    server = AdminServer()

    def broken() -> bytes:
        raise ValueError("no number")

    server.page = broken
    assert server.ask("GET /metrics")[::2] == (500, b"ValueError: no number")
    assert server.ask("GET /live")[0] == 200


def test_shutdown_as_it_is_enabled() -> None:
    assert AdminServer().ask("POST /shutdown") == (
        404,
        {"content-type": "text/plain", "content-length": "33"},
        b"shutdown endpoint is not enabled\n",
    )
    assert AdminServer(shut_down=lambda: False).ask("POST /shutdown")[::2] == (500, b"shutdown listener dropped\n")
    told: list[bool] = []

    def shut_down() -> bool:
        told.append(True)
        return True

    assert AdminServer(shut_down=shut_down).ask("POST /shutdown")[0] == 200 and told == [True]


def test_log_level_methods() -> None:
    assert (
        AdminServer()
        .http1(raw("DELETE /proxy-log-level"))
        .startswith(b"HTTP/1.1 405 Method Not Allowed\r\nallow: GET\r\nallow: PUT\r\n")
    )
    assert AdminServer(is_off=True).ask("GET /proxy-log-level") == (404, {"content-length": "0"}, b"")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"linkerd=debug,===", b"invalid filter directive"),
        (
            b"linkerd=loud",
            b'error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5',
        ),
        (b"\xff", b"invalid utf-8 sequence of 1 bytes from index 0"),
    ],
)
def test_a_bad_filter_changes_nothing(body: bytes, error: bytes) -> None:
    server = AdminServer()
    assert server.ask("PUT /proxy-log-level", body=body)[::2] == (400, error)
    assert str(server.log.filter) == "_access_log=off,linkerd=info,warn"


def test_a_filter_in_pieces_is_one_filter() -> None:
    chunked = (
        b"PUT /proxy-log-level HTTP/1.1\r\nhost: localhost:4191\r\ntransfer-encoding: chunked\r\n\r\n"
        b"5\r\nwarn,\r\nd\r\nlinkerd=debug\r\n0\r\nx: y\r\n\r\n"
    )
    server = AdminServer()
    assert server.http1(chunked).startswith(b"HTTP/1.1 204 No Content\r\n")
    assert str(server.log.filter) == "_access_log=off,linkerd=debug,warn"


def test_no_body_is_the_default_filter() -> None:
    server = AdminServer()
    assert server.ask("PUT /proxy-log-level")[0] == 204
    assert str(server.log.filter) == "_access_log=off,warn"


def test_a_filter_that_is_too_long_is_refused_before_it_ends() -> None:
    server = AdminServer()
    head = f"PUT /proxy-log-level HTTP/1.1\r\nhost: localhost:4191\r\ncontent-length: {2 * limits.LOG_FILTER_BYTES}\r\n\r\n".encode()
    answer = server.http1(head + b"a" * (limits.LOG_FILTER_BYTES + 1))
    assert answer.startswith(b"HTTP/1.1 413 ") and b"Connection: close" in answer
    assert str(server.log.filter) == "_access_log=off,linkerd=info,warn"


def test_a_filter_of_too_many_directives_is_refused() -> None:
    """Each is compared with every logger, and with lines later: twenty clients held the loop for a second."""
    server = AdminServer()
    for most, status in ((limits.LOG_FILTER_ITEMS, b"204"), (limits.LOG_FILTER_ITEMS + 1, b"400")):
        body = ",".join(f"a{number}=info" for number in range(most))
        head = f"PUT /proxy-log-level HTTP/1.1\r\nhost: localhost:4191\r\ncontent-length: {len(body)}\r\n\r\n"
        answer = server.http1((head + body).encode())
        assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.endswith(b"a filter has at most 128 directives and fields")


def test_few_bodies_are_awaited_and_the_oldest_makes_room() -> None:
    server = AdminServer()
    wires = []
    for _ in range(limits.AWAITED_BODIES + 1):
        wire = ListWire()
        codec = H1Server(wire, AdminStage(server.admin, True), server.clock)
        codec.feed(b"PUT /proxy-log-level HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\ndeb")
        wires.append((codec, wire))
    assert [wire.take()[:12] for _, wire in wires if wire.written] == [b"HTTP/1.1 408"]
    assert not wires[0][1].written and isinstance(wires[0][1].codec, Linger)
    assert len(server.admin.bodies) == limits.AWAITED_BODIES
    for codec, _ in wires[2:]:
        codec.lost(Reason.PEER_CLOSED)
    assert len(server.admin.bodies) == 1
    wires[1][0].feed(b"ug")
    assert wires[1][1].take().startswith(b"HTTP/1.1 204") and not len(server.admin.bodies)


def test_a_shutdown_waits_for_no_body() -> None:
    server = AdminServer()
    for begins_after in (False, True):
        wire = ListWire()
        codec = H1Server(wire, AdminStage(server.admin, True), server.clock)
        if begins_after:
            server.admin.bodies.close()
        codec.feed(b"PUT /proxy-log-level HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\ndeb")
        server.admin.bodies.close()
        assert wire.take().startswith(b"HTTP/1.1 503") and not len(server.admin.bodies)
    assert server.ask("PUT /proxy-log-level")[0] == 204, "without a body there is nothing to wait for"


def test_over_http2() -> None:
    server = AdminServer(env={"SPONSON_A": "1"})
    assert server.http2("GET", "/live") == (200, b"live\n")
    assert server.http2("GET", "/env.json?SPONSON_A") == (200, b'{"SPONSON_A":"1"}')
    assert server.http2("PUT", "/proxy-log-level", b"warn,linkerd=debug") == (204, b"")
    assert server.http2("GET", "/proxy-log-level") == (200, b"_access_log=off,linkerd=debug,warn")
    assert server.http2("HEAD", "/ready") == (200, b"")


def test_answers_on_one_connection_come_in_order() -> None:
    answers = AdminServer().http1(raw("GET /live") + raw("PUT /proxy-log-level", b"info") + raw("GET /nothing"))
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"204", b"404"]
