"""Two readers of one message: what policy judged, and what apps read from the bytes that they get.

A client writes requests of a grammar that has every odd form by which some proxy was deceived, over HTTP/1 or
HTTP/2. What the stage sees is judged: method, host, path. The apps' ends are read by three readers that share
nothing with us: h11 or h2, one that follows RFC 9110 and 9112 and nothing else, and one that names fields as CGI
does. All must have read what was judged, once, in order.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h11
import hpack

from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http import orig_proto
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.h1.server import H1Server
from proxy.http.h2.client import H2Client
from proxy.http.h2.frames import frame
from proxy.http.h2.server import H2Server
from proxy.http.head import HTTP_2, RequestHead
from proxy.http.pool import Pool
from proxy.policy.routes.match import host_of
from tests.fuzz.choices import SEEDS, Choices, decisions
from tests.fuzz.ends import Front, FuzzWire
from tests.fuzz.target import Target
from tests.kit import Clock
from tests.kit.attempts import ToPoolAgain

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: public\r\n\r\n"


class Request(NamedTuple):
    method: bytes
    host: str
    path: bytes


# ---- what a client may write

METHODS = (b"GET", b"CONNECT", b"POST", b"CONNECT", b"OPTIONS", b"CONNECT", b"HEAD", b"connect")
TARGETS_1 = (
    b"/public", b"public:80", b"http://public/x", b"public", b"http://public", b"*", b"/a?b=c", b"HTTP://PUBLIC/", b"http://u@admin/",
    b"//admin/x", b"http://:80/", b"/a#b", b"http:///x", b"/%2e%2e/admin", b"https://public:443/",
)  # fmt: skip
HOSTS = (
    b"Host: public", b"Host: admin", b"host: PUBLIC", b"Host: public:80", b"Host: public\r\nHost: admin", b"X: y", b"Host : admin", b"Host: %61dmin",
    b"Host: [admin]", b"Host: public,admin", b"Host:", b"Host: public\r\n admin", b"Host: u@public", b"Host:\tpublic ",
)  # fmt: skip
FRAMINGS = (
    b"X: y", b"Content-Length: %d", b"X: y", b"Content-Length: %d", b"Transfer-Encoding: chunked",
    b"Content-Length: %d", b"Transfer-Encoding: chunked", b"Content-Length: 0", b"Content-Length: 5, 5", b"Content-Length: +5",
    b"Content-Length: 5\r\nContent-Length: 6", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Content-Length: %d\r\nTransfer-Encoding: chunked",
)  # fmt: skip
FIELDS_1 = (
    b"Upgrade: foo", b"Connection: Upgrade", b"Upgrade: foo, h2c", b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: AAMAAABkAAQ",
    b"Upgrade: h2c,", b"Upgrade: h2c/1.0", b"Upgrade: H2C", b"Upgrade: ,h2c", b"l5d_client_id: boss", b"l5d-client-id: boss", b"L5d.Client.Id: boss",
    b"l5d-client_id: boss", b"l5d-orig-proto: HTTP/1.1", b"Expect: 100-continue", b"Connection: close, l5d-client-id", b"Connection: host, content-length",
    b"TE: trailers", b"X: a\r\n b", b"X: a\nY: b", b"X : y", b"Connection: keep-alive", b"Trailer: x", b"X: \x80",
)  # fmt: skip
BODIES = (
    SMUGGLED,
    b"",
    SMUGGLED,
    b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED),
    b"0\r\n\r\n" + SMUGGLED,
    b"5;x\r\nhello\r\n0\r\nX: y\r\n\r\n",
    b"hello",
)

PATHS_2 = (b"/public", b"/a?b", b"*", b"/a#b", b"//admin", b"public", b"http://public/", b"")
AUTHORITIES = (b"public", b"PUBLIC:80", b"admin", b"u@public", b"%61dmin", b"[admin]", b":80", b"")
FIELDS_2 = (
    (b"host", b"admin"), (b"host", b"public"), (b"l5d-orig-proto", b"HTTP/1.1"), (b"l5d-orig-proto", b"HTTP/1.1; absolute-form"), (b"content-length", b"%d"),
    (b"l5d_client_id", b"boss"), (b"l5d-client-id", b"boss"), (b"te", b"trailers"), (b"http2-settings", b"AAMAAABkAAQ"), (b"l5d-orig-proto", b"HTTP/1.0"),
    (b"l5d-orig-proto", b"HTTP/2"), (b"upgrade", b"h2c"), (b"connection", b"close"), (b"transfer-encoding", b"chunked"), (b"content-length", b"0"), (b"x", b"y"),
    (b"l5d-orig-proto", b"x"), (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"expect", b"100-continue"),
)  # fmt: skip
PROTOCOLS = (b"", b"", b"websocket", b"h2c", b"foo", b"H2C")


def http1_requests(choices: Choices) -> bytes:
    data = b""
    for _ in range(1 + choices.number(3)):
        body = choices.of(BODIES)
        method = choices.of(METHODS)
        target = choices.of(
            (b"public:80", b"public", b"/public", b"http://public/") if method == b"CONNECT" else TARGETS_1
        )
        lines = [b"%b %b HTTP/1.%d" % (method, target, choices.number(8) != 7), choices.of(HOSTS)]
        lines += [choices.of(FRAMINGS), *choices.some(FIELDS_1, 4)]
        end = b"\n" if choices.number(16) == 15 else b"\r\n"
        data += end.join(one.replace(b"%d", b"%d" % len(body)) for one in lines) + end + end + body
    return data


def http2_requests(choices: Choices) -> bytes:
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    data = frame.PREFACE + frame.settings([])
    for number in range(1 + choices.number(3)):
        stream = 2 * number + 1
        body = choices.of((b"", SMUGGLED, b"hello"))
        method, protocol = choices.of(METHODS), choices.of(PROTOCOLS)
        fields = [(b":method", b"CONNECT" if protocol else method), (b":authority", choices.of(AUTHORITIES))]
        if protocol:
            fields.append((b":protocol", protocol))
        if protocol or method != b"CONNECT":
            fields += [(b":scheme", b"http"), (b":path", choices.of(PATHS_2))]
        fields += [(name, value.replace(b"%d", b"%d" % len(body))) for name, value in choices.some(FIELDS_2, 4)]
        ends = not choices.number(2)
        data += frame.header_frames(stream, bytes(encoder.encode(fields)), ends and not body)
        if body:
            data += frame.header(len(body), frame.DATA, ends, stream) + body
    return data


# ---- what is judged on the way


class Judging:
    """The stage: it reads the mesh's marks as the inbound side does, notes what policy judges, and sends the request
    on.
    """

    def __init__(self, is_meshed: bool, http1: Pool, http2: Pool) -> None:
        self.judged: list[Request] = []
        self.asked: list[Exchange] = []
        self._is_meshed = is_meshed
        self._http1 = http1
        self._http2 = http2

    def dispatch(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.has_l5d:
            request = exchange.request = orig_proto.without_marks(request, self._is_meshed)
        target = request.authority if request.method == b"CONNECT" else request.path
        self.judged.append(Request(request.method, host_of(request.authority), without_fragment(target)))
        self.asked.append(exchange)
        ToPoolAgain(self._http2 if request.version == HTTP_2 else self._http1).send(exchange)


# ---- what apps read

_field = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*", re.DOTALL).fullmatch


class Http1App:
    """Reads by RFC 9110 and 9112, and answers as the input chose. A CONNECT has no body, whatever its fields."""

    def __init__(self, wire: FuzzWire, answers: list[int]) -> None:
        self.wire = wire
        self.read: list[Request] = []
        self.heads: list[dict[bytes, list[bytes]]] = []
        self.all = b""
        """All bytes up to the tunnel, if the connection becomes one."""
        self.is_tunnel = False
        self._answers = answers
        self._unread = b""

    def run(self) -> bool:
        data = self.wire.take()
        if not data or self.is_tunnel:
            return False
        self.all += data
        self._unread += data
        while not self.is_tunnel and b"\r\n\r\n" in self._unread and self._take_request():
            pass
        return True

    def _take_request(self) -> bool:
        text, _, rest = self._unread.partition(b"\r\n\r\n")
        start, *lines = text.split(b"\r\n")
        assert b"\n" not in text.replace(b"\r\n", b"") and b"\r" not in text.replace(b"\r\n", b""), text
        method, target, version = start.split(b" ")
        head: dict[bytes, list[bytes]] = {}
        for line in lines:
            match = _field(line)
            assert match is not None, line
            head.setdefault(match[1].lower(), []).append(match[2])
        size = self._body_size(method, head, rest)
        if size < 0:
            return False
        self._unread = rest[size:]
        self.heads.append(head)
        self.read.append(self._request(method, target, version, head))
        self._answer(method, head)
        return True

    def _request(self, method: bytes, target: bytes, version: bytes, head: dict[bytes, list[bytes]]) -> Request:
        hosts = head.get(b"host", [])
        assert len(hosts) == 1 or (version == b"HTTP/1.0" and not hosts), hosts
        host = host_of(hosts[0]) if hosts else ""
        absolute = re.fullmatch(rb"[A-Za-z][A-Za-z0-9+.\-]*://([^/?#]*)([^#]*)(?:#.*)?", target)
        if method == b"CONNECT":
            assert not hosts or host_of(target) == host, "one host for who reads the target, another for who reads Host"
            return Request(method, host_of(target), target)
        if absolute is None:
            return Request(method, host, without_fragment(target))
        named, path = absolute.groups()
        assert not hosts or host_of(named) == host, "one host for who reads the target, another for who reads Host"
        if not path.startswith(b"/"):
            path = b"*" if method == b"OPTIONS" and not path else b"/" + path
        return Request(method, host_of(named), path)

    def _body_size(self, method: bytes, head: dict[bytes, list[bytes]], rest: bytes) -> int:
        """The size of the body, -1 if it is not all there. A CONNECT has none (RFC 9110 section 9.3.6)."""
        if method == b"CONNECT":
            return 0
        codings = head.get(b"transfer-encoding", [])
        lengths = head.get(b"content-length", [])
        assert len(codings) + len(lengths) <= 1, (codings, lengths)
        if codings:
            assert codings == [b"chunked"]
            match = re.match(rb"(?:[1-9a-f][0-9a-f]*\r\n(?s:.)*?\r\n)*?0\r\n(?:[^\r\n]+\r\n)*\r\n", rest)
            return match.end() if match else -1
        size = int(lengths[0]) if lengths else 0
        return size if len(rest) >= size else -1

    def _answer(self, method: bytes, head: dict[bytes, list[bytes]]) -> None:
        kind = self._answers[len(self.read) % len(self._answers)]
        body = b"" if method == b"HEAD" else b"ok"
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + body
        if method == b"CONNECT":
            self.is_tunnel = kind < 2
            answer = b"HTTP/1.1 200 OK\r\n\r\n" if kind < 2 else b"HTTP/1.1 405 No\r\nContent-Length: 2\r\n\r\n" + body
        elif b"upgrade" in head and kind < 3:
            self.is_tunnel = True
            offered = (b"h2c", b"foo, h2c", head[b"upgrade"][0])[kind]
            answer = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\n" % offered
        codec: Any = self.wire.codec
        if not self.wire.is_over:
            codec.feed(answer)


def h11_reads(data: bytes) -> list[Request] | None:
    """The requests that h11 reads; None if it refuses, as it does more often than RFC 9112 asks."""
    app = h11.Connection(h11.SERVER)
    app.receive_data(data)
    found: list[Request] = []
    try:
        while True:
            event = app.next_event()
            if isinstance(event, h11.Request):
                host = dict(event.headers).get(b"host", b"")
                target = bytes(event.target)
                if not host and b"://" in target:
                    host = target.split(b"/")[2]
                found.append(Request(bytes(event.method), host_of(bytes(host)), target))
            elif event is h11.PAUSED:
                if app.our_state is not h11.DONE or app.their_state is not h11.DONE:
                    return found  # it may become a tunnel, or is to be closed
                app.start_next_cycle()
            elif event is h11.NEED_DATA:
                return found
            elif isinstance(event, h11.EndOfMessage):
                app.send(h11.Response(status_code=404, headers=[(b"content-length", b"0")]))
                app.send(h11.EndOfMessage())
    except h11.RemoteProtocolError:
        return None


class Http2App:
    """What h2 reads, and answers with 200."""

    def __init__(self, wire: FuzzWire) -> None:
        self.wire = wire
        self.read: list[Request] = []
        self.names: list[bytes] = []
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self._h2.local_settings.enable_connect_protocol = 1
        self._h2.initiate_connection()

    def run(self) -> bool:
        data = self.wire.take()
        moved = bool(data)
        try:
            for event in self._h2.receive_data(data) if data else ():
                if isinstance(event, h2.events.RequestReceived):
                    self._note([(bytes(name), bytes(value)) for name, value in event.headers])
                    self._h2.send_headers(event.stream_id, [(b":status", b"200")], end_stream=True)
        except h2.exceptions.ProtocolError:
            return False  # it refuses a request that names no host, and cannot answer one that was given up
        out = self._h2.data_to_send()
        codec: Any = self.wire.codec
        if out and not self.wire.is_over:
            codec.feed(out)
        return moved

    def _note(self, headers: list[tuple[bytes, bytes]]) -> None:
        head = dict(headers)
        self.names += head
        method = head[b":method"]
        authority = head.get(b":authority", head.get(b"host", b""))
        assert host_of(head.get(b"host", authority)) == host_of(authority)
        assert head.get(b":protocol", b"").lower() != b"h2c"
        if method == b"CONNECT" and b":protocol" in head:
            method = b"GET"
        path = without_fragment(head[b":path"]) if b":path" in head else authority
        self.read.append(Request(method, host_of(authority), path))


def without_fragment(path: bytes) -> bytes:
    """The path without its fragment. Policy knows that some apps cut it off (policy/routes/reading.py)."""
    return path.partition(b"#")[0]


class Scene:
    """A client's wire, the stage, and the apps that are dialled."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.is_http2 = bool(choices.number(2))
        self._answers = [choices.number(4) for _ in range(3)]
        self.clock = Clock()
        self.wheel = Wheel(0.1, self.clock.now)
        self.http1: list[Http1App] = []
        self.http2: list[Http2App] = []
        self.stage = Judging(bool(choices.number(2)), H1Pool(self._dial1, self.wheel), Pool(self._dial2))
        self.wire = FuzzWire()
        server: Any = H2Server if self.is_http2 else H1Server
        self.server = server(self.wire, self.stage, self.clock, wheel=self.wheel)
        self.wire.codec = self.server

    def play(self) -> None:
        write = http2_requests if self.is_http2 else http1_requests
        data = write(self.choices)
        cut = self.choices.number(len(data) + 1) if self.choices.number(2) else len(data)
        for part in (data[:cut], data[cut:]):
            if part and not self.wire.is_over:
                self.server.feed(part)
            self._settle()

    def _settle(self) -> None:
        moved = True
        while moved:
            self.wire.give_turns()
            ran = [one.run() for one in self.http1] + [one.run() for one in self.http2]  # each of them
            moved = any(ran)

    def _dial1(self, pool: Pool) -> H1Client:
        wire = FuzzWire()
        client = H1Client(wire, pool)
        wire.codec = client
        self.http1.append(Http1App(wire, self._answers))
        return client

    def _dial2(self, pool: Pool) -> H2Client:
        wire = FuzzWire()
        client = H2Client(wire, pool, wheel=self.wheel)
        wire.codec = client
        self.http2.append(Http2App(wire))
        return client


def run_requests(data: bytes) -> None:
    scene = Scene(Choices(data))
    scene.play()
    judged = sorted(scene.stage.judged)
    read = [request for app in scene.http1 for request in app.read]
    read += [request for app in scene.http2 for request in app.read]
    # A body that did not come whole, and an extended CONNECT that an app does not take, leave requests unread.
    for one in sorted(read):
        assert one in judged, f"an app read {one}, which nobody judged: {judged}"
        judged.remove(one)
    for exchange in scene.stage.asked:
        response = exchange.response
        if response is not None and response.status == 101:
            answered = {one.strip().lower() for one in response.upgrade.split(b",")}
            asked = {one.strip().lower() for one in exchange.request.upgrade.split(b",")}
            assert answered <= asked and b"h2c" not in answered, "a tunnel to what nobody asked for"
    for app in scene.http1:
        check_http1(app)
    for app2 in scene.http2:
        check_names(app2.names)


def check_http1(app: Http1App) -> None:
    for head in app.heads:
        check_names(list(head))
        offers = [one for value in head.get(b"upgrade", []) for one in value.lower().split(b",")]
        assert not any(one.strip().partition(b"/")[0] == b"h2c" for one in offers), offers
    known = h11_reads(app.all)
    if known is not None and not app.is_tunnel:
        ours = [(one.method, one.host) for one in app.read]
        assert [(one.method, one.host) for one in known][: len(ours)] == ours, (known, ours)
    methods = [one.method for one in app.read]
    assert b"CONNECT" not in methods[:-1], "a connection that carried CONNECT was used again"


def check_names(names: list[bytes]) -> None:
    """Fields as a CGI-like app sees them: none that a client sent may have a name of the mesh."""
    folded = [re.sub(r"[^A-Z0-9]", "_", name.decode("latin-1").upper()) for name in names]
    assert not any(one in ("L5D_CLIENT_ID", "L5D_ORIG_PROTO", "HTTP2_SETTINGS") for one in folded), names


# ---- answers

CODINGS = (
    b"chunked", b"identity", b"gzip", b"gzip, chunked", b"chunked, gzip", b"identity, chunked", b"chunked, identity", b"chunked, chunked", b"CHUNKED", b",chunked",
    b"chunked;q=1", b"xchunked", b"", b"x-foo", b"chunked\r\nTransfer-Encoding: chunked", b"gzip\r\nTransfer-Encoding: chunked", b'"chunked"',
)  # fmt: skip
LINES = (
    b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: 5, 5", b"Content-Length: 9", b"Content-Length : 5", b"X-Foo : yes", b"X-Foo\t: yes", b"Connection: close",
    b"l5d-orig-proto: HTTP/1.0", b"Upgrade: h2c", b"X: \x80", b"Keep-Alive: timeout=1",
)  # fmt: skip
STATUSES = (200, 204, 304, 404, 100, 103, 500)
ANSWER_BODIES = (
    b"",
    b"hello",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5\r\nhello\r\n0\r\nX : y\r\n\r\n",
    b"hello" + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
)


def run_responses(data: bytes) -> None:
    """A response whose end is defined by RFC 9112 section 6.3 is delivered with the body that it defines; no other
    response reaches a client.
    """
    choices = Choices(data)
    wires: list[FuzzWire] = []
    wheel = Wheel(0.1, 100.0)

    def dial(pool: Pool) -> H1Client:
        wire = FuzzWire()
        client = H1Client(wire, pool)
        wire.codec = client
        wires.append(wire)
        return client

    pool = H1Pool(dial, wheel)
    method = choices.of((b"GET", b"HEAD", b"POST"))
    first = Front(RequestHead(method, b"http", b"a", b"/", [], 0))
    first.exchange.request_ended = True
    ToPoolAgain(pool).send(first.exchange)
    status = choices.of(STATUSES)
    lines = choices.some([*(b"Transfer-Encoding: " + one for one in CODINGS), *LINES], 3)
    space = choices.of((b"", b"", b" "))
    lines = [one.replace(b":", space + b":", 1) for one in lines]
    body = choices.of(ANSWER_BODIES)
    said = b"\r\n".join([b"HTTP/1.1 %d X" % status, *lines, b"", b""]) + body
    client: Any = wires[0].codec
    cut = choices.number(len(said))
    for part in (said[:cut], said[cut:]):
        if part and not wires[0].is_over:
            client.feed(part)
    second = Front(RequestHead(b"GET", b"http", b"a", b"/second", [], 0))
    second.exchange.request_ended = True
    ToPoolAgain(pool).send(second.exchange)
    for wire in wires:
        codec: Any = wire.codec
        if wire.aborted is None and len(wires) == 2 and wire is wires[0]:
            codec.eof()
            codec.lost(Reason.PEER_CLOSED)
    want = expected(method, status, lines, body)
    if want is None:
        assert first.head is None or first.reset_by or first.head.status == 502 or status < 200
    elif status >= 200:
        assert first.head is not None and first.head.status == status, (said, first.head)
        assert bytes(first.body) == want, (said, first.body, want)
        assert not any(one.line.partition(b":")[0][-1:] in b" \t" for one in first.head.fields)
    assert second.head is None, "an answer to nothing"


def expected(method: bytes, status: int, lines: list[bytes], body: bytes) -> bytes | None:
    """The body by RFC 9112 section 6.3, on a connection that ends after it; None if it is undefined or cut short."""
    named = [(name.strip().lower(), value.strip()) for name, _, value in (one.partition(b":") for one in lines)]
    text = b",".join(one for line in lines for one in transfer(line))
    codings = [one for part in text.lower().split(b",") if (one := part.strip(b" \t")) and one != b"identity"]
    lengths = {one.strip() for name, value in named if name == b"content-length" for one in value.split(b",")}
    if len(lengths) > 1 or any(b"\n" in value and name != b"transfer-encoding" for name, value in named):
        return None
    if method == b"HEAD" or status < 200 or status in (204, 304):
        return b""
    if codings:
        if codings.count(b"chunked") > 1 or any(b"chunked" in one and one != b"chunked" for one in codings):
            return None
        if codings[-1] != b"chunked":
            return body
        return b"hello" if body.startswith(b"5\r\n") else None
    if lengths:
        size = int(lengths.pop())
        return body[:size] if len(body) >= size else None
    return body


def transfer(line: bytes) -> list[bytes]:
    """The values of Transfer-Encoding in a piece of a head, which may be two lines."""
    found = []
    for one in line.split(b"\r\n"):
        name, _, value = one.partition(b":")
        if name.strip(b" \t").lower() == b"transfer-encoding":
            found.append(value)
    return found


TARGETS = (
    Target("requests", run_requests, (), SEEDS, shape=decisions, runs=5000),
    Target("responses", run_responses, (), SEEDS, shape=decisions),
)
