"""Generated exchanges: a request as bytes or frames, and the app's response to it. They follow from a seed, so that
each run is the same.

Everything here is well formed; input that must be refused is tested in tests/field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

Fields = list[tuple[bytes, bytes]]

_METHODS = [
    b"GET",
    b"GET",
    b"GET",
    b"POST",
    b"POST",
    b"PUT",
    b"DELETE",
    b"HEAD",
    b"OPTIONS",
    b"PATCH",
    b"PROPFIND",
    b"M-SEARCH",
    b"x",
]
_PATHS = [
    b"/", b"/a/b/c", b"/a?b=c&d=%20e", b"/a%2Fb", b"//x", b"/a/../b", b"/;p?", b"/caf\xc3\xa9", b'/"{}|^`', b"/%zz", b"/?", b"/a/", b"/~x:y@z",
    b"/" + b"long/" * 200,
]  # fmt: skip
_NAMES = [
    b"Accept", b"accept-language", b"X-Custom", b"x-custom", b"X-TRACE-ID", b"User-Agent", b"Authorization", b"Cookie", b"If-None-Match",
    b"Content-Type", b"X_Under", b"x.dot", b"!odd~", b"Via", b"Forwarded", b"X-Forwarded-For", b"Cache-Control", b"traceparent", b"Range",
]  # fmt: skip
_ANSWER_NAMES = [
    b"Content-Type", b"Set-Cookie", b"set-cookie", b"ETag", b"Location", b"Server", b"X-Custom", b"x-custom", b"Vary", b"WWW-Authenticate",
    b"Cache-Control", b"Link", b"X-POWERED-BY", b"Age", b"Retry-After", b"Via", b"Warning",
]  # fmt: skip
_VALUES = [
    b"1", b"", b"a b", b"a\tb", b"a, b, c", b'"quoted; \\" text"', b"caf\xe9", b"\xff\xfe", b"a=1; b=2", b"x" * 500, b"*/*", b"W/\"5\"", b":", b"=?utf-8?",
]  # fmt: skip
_HOPS = [
    (b"Connection", b"X-Hop"),
    (b"Keep-Alive", b"timeout=5"),
    (b"Proxy-Connection", b"keep-alive"),
    (b"TE", b"trailers, deflate"),
]
STATUSES = [
    b"200 OK", b"200 OK", b"200 OK", b"200 Fine", b"201 Created", b"204 No Content", b"206 Partial Content", b"299 Odd", b"301 Moved Permanently",
    b"304 Not Modified", b"400 Bad Request", b"401 Unauthorized", b"404 Not Found", b"418 I'm a teapot", b"429 Too Many Requests",
    b"500 Internal Server Error", b"503 Service Unavailable", b"599 ", b"599",
]  # fmt: skip
_DATE = (b"Date", b"Sun, 06 Nov 1994 08:49:37 GMT")
_TRAILERS = [
    (b"X-Sum", b"9"),
    (b"x-twice", b"a"),
    (b"x-twice", b"b"),
    (b"Grpc-Status", b"0"),
    (b"Content-Type", b"no"),
    (b"Host", b"evil"),
]


@dataclass
class Body:
    form: str
    """`none`, `zero`, `length`, `chunked`, or for responses `close`."""
    data: bytes = b""
    cuts: list[int] = field(default_factory=list)
    trailers: Fields = field(default_factory=list)


@dataclass
class Case:
    number: int
    is_http2: bool
    method: bytes
    target: bytes
    version: bytes
    host: bytes | None
    fields: Fields
    body: Body
    informational: list[bytes]
    """Statuses with their reason phrases."""
    status: bytes
    answer_version: bytes
    answer_fields: Fields
    answer_body: Body

    def request_fields(self) -> Fields:
        """As an HTTP/2 header list."""
        pseudo = [
            (b":method", self.method),
            (b":scheme", b"http"),
            (b":authority", self.host or b""),
            (b":path", self.target),
        ]
        return [*pseudo, (b"x-case", b"%d" % self.number), *self.fields, *length(self.body)]

    def response_heads(self) -> list[Fields]:
        early = [[(b":status", one[:3]), (b"x-early", b"%d" % index)] for index, one in enumerate(self.informational)]
        return [*early, [(b":status", self.status[:3]), *self.answer_fields, *length(self.answer_body)]]

    def request(self) -> bytes:
        """As HTTP/1 bytes."""
        host = [b"Host: " + self.host] if self.host is not None else []
        lines = [b"%b %b HTTP/%b" % (self.method, self.target, self.version), *host, b"X-Case: %d" % self.number]
        return head(lines, self.fields, self.body) + encoded(self.body)

    def response(self) -> bytes:
        """As HTTP/1 bytes, with informational responses; for an answer to HEAD only the head."""
        out = b"".join(
            b"HTTP/1.1 %b\r\nX-Early: %d\r\n\r\n" % (one, index) for index, one in enumerate(self.informational)
        )
        out += head([b"HTTP/%b %b" % (self.answer_version, self.status)], self.answer_fields, self.answer_body)
        return out if self.method == b"HEAD" or self.has_no_body else out + encoded(self.answer_body)

    @property
    def has_no_body(self) -> bool:
        return self.status[:3] in (b"204", b"304")

    @property
    def closes(self) -> bool:
        """Whether the app ends its connection after the response."""
        return self.answer_body.form == "close" or self.answer_version == b"1.0"


def length(body: Body) -> Fields:
    return [(b"content-length", b"%d" % len(body.data))] if body.form in ("length", "zero") else []


def head(lines: list[bytes], fields: Fields, body: Body) -> bytes:
    framing = {
        "zero": [b"Content-Length: 0"],
        "length": [b"Content-Length: %d" % len(body.data)],
        "chunked": [b"Transfer-Encoding: chunked"],
    }.get(body.form, [])
    at = len(fields) // 2
    written = [name + b": " + value for name, value in fields]
    return b"\r\n".join([*lines, *written[:at], *framing, *written[at:]]) + b"\r\n\r\n"


def encoded(body: Body) -> bytes:
    if body.form != "chunked":
        return body.data
    out = []
    start = 0
    for cut in [*body.cuts, len(body.data)]:
        if cut > start:
            out.append(b"%x\r\n%b\r\n" % (cut - start, body.data[start:cut]))
            start = cut
    return b"".join([*out, b"0\r\n", *[b"%b: %b\r\n" % one for one in body.trailers], b"\r\n"])


def make(number: int) -> Case:
    dice = Random(f"sponson {number}")
    is_http2 = dice.random() < 0.3
    method = dice.choice(_METHODS)
    version = b"2" if is_http2 else dice.choice([b"1.1"] * 6 + [b"1.0"])
    target = dice.choice(_PATHS)
    if method == b"OPTIONS" and dice.random() < 0.3:
        target = b"*"
    elif not is_http2 and dice.random() < 0.1:
        target = b"http://app.ns:8080" + target
    host: bytes | None = dice.choice([b"app.ns", b"App.NS:8080", b"10.0.0.1", b"[fd00::1]:80"])
    if target.startswith(b"http:"):
        host = b"app.ns:8080"
    elif version == b"1.0" and dice.random() < 0.3:
        host = None
    fields = _fields(dice, _NAMES, is_http2)
    if not is_http2 and dice.random() < 0.2:
        fields += [dice.choice(_HOPS), (b"X-Hop", b"1")]
    if not is_http2 and dice.random() < 0.15:
        fields.append((b"Connection", dice.choice([b"close", b"keep-alive", b"Keep-Alive"])))
    if is_http2 and dice.random() < 0.2:
        fields.append((b"te", b"trailers"))
    body = _body(
        dice,
        ["none", "none", "zero", "length", "chunked", "chunked"] if version != b"1.0" else ["none", "zero", "length"],
    )
    answer_version = dice.choice([b"1.1"] * 8 + [b"1.0"])
    status = dice.choice(STATUSES)
    forms = ["none"] if status[:3] in (b"204", b"304") else ["zero", "length", "length", "chunked", "chunked", "close"]
    answer_body = _body(
        dice, forms if answer_version == b"1.1" and version != b"1.0" else [one for one in forms if one != "chunked"]
    )
    answer_fields = _fields(dice, _ANSWER_NAMES, is_http2)
    if dice.random() < 0.5:
        answer_fields.append((_DATE[0].lower(), _DATE[1]) if is_http2 else _DATE)
    if not is_http2 and dice.random() < 0.15:
        answer_fields += [(b"Keep-Alive", b"timeout=5"), (b"Connection", b"X-Hop"), (b"X-Hop", b"1")]
    informational = [
        dice.choice([b"103 Early Hints", b"102 Processing"]) for _ in range(dice.choice([0, 0, 0, 0, 1, 3]))
    ]
    return Case(
        number, is_http2, method, target, version, host, fields, body, informational, status, answer_version, answer_fields, answer_body
    )  # fmt: skip


def _fields(dice: Random, names: list[bytes], lowers: bool) -> Fields:
    found = []
    for _ in range(dice.randrange(8)):
        name = dice.choice(names)
        found.append((name.lower() if lowers else name, dice.choice(_VALUES)))
        if dice.random() < 0.2:
            found.append((found[-1][0], dice.choice(_VALUES)))
    return found


def _body(dice: Random, forms: list[str]) -> Body:
    form = dice.choice(forms)
    if form in ("none", "zero"):
        return Body(form)
    size = (
        dice.choice([0, 1, 5, 100, 4096, 16384, 70_000])
        if form == "chunked"
        else dice.choice([1, 5, 100, 4096, 16384, 70_000])
    )
    data = dice.randbytes(size)
    if form != "chunked":
        return Body(form, data)
    cuts = sorted(dice.randrange(size + 1) for _ in range(dice.randrange(5)))
    return Body(form, data, cuts, dice.sample(_TRAILERS, dice.choice([0, 0, 1, 3])))
