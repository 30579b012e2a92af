"""HTTP/1 heads: read strictly, write from interned lines.

Law: a block of header lines met before is one lookup; else each line is one
lookup; what that does not know is judged by one strict expression (RFC 9112,
and no obs-fold, no bare CR or LF, no second or contradictory length).
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core import limits
from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason
from proxy.http.head import TUNNEL, UNKNOWN, RequestHead, ResponseHead
from proxy.http.headers import (
    CONNECTION,
    CONTENT_LENGTH,
    HOP,
    HOST,
    MALFORMED,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    Field,
    field_of_line,
    known_line,
)

_request_line = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e]+) HTTP/1\.([01])").fullmatch
_status_line = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?").fullmatch
_absolute = re.compile(rb"(https?)://([^/?#@]+)(.*)", re.IGNORECASE).fullmatch

_PHRASES: Final[dict[int, bytes]] = {
    100: b"Continue", 101: b"Switching Protocols", 103: b"Early Hints", 200: b"OK", 201: b"Created",
    202: b"Accepted", 204: b"No Content", 206: b"Partial Content", 301: b"Moved Permanently", 302: b"Found",
    304: b"Not Modified", 307: b"Temporary Redirect", 308: b"Permanent Redirect", 400: b"Bad Request",
    401: b"Unauthorized", 403: b"Forbidden", 404: b"Not Found", 405: b"Method Not Allowed", 409: b"Conflict",
    413: b"Content Too Large", 429: b"Too Many Requests", 431: b"Request Header Fields Too Large",
    500: b"Internal Server Error", 501: b"Not Implemented", 502: b"Bad Gateway", 503: b"Service Unavailable",
    504: b"Gateway Timeout",
}  # fmt: skip
_STATUS_LINES: Final[dict[int, bytes]] = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, phrase) for status, phrase in _PHRASES.items()
}


class HeaderBlock:
    """What the header lines of one head say: the fields that travel on, and facts for the codec.

    Remembered by its text, like an HPACK block, so it is never changed.
    """

    __slots__ = ("fields", "authority", "length", "is_chunked", "closes", "upgrade", "takes_trailers", "is_familiar")

    def __init__(self, lines: list[bytes]) -> None:
        self.fields: list[Field] = []
        self.authority: bytes | None = None
        self.length = UNKNOWN
        self.is_chunked = False
        self.closes = False
        self.upgrade = b""
        self.takes_trailers = False
        self.is_familiar = True
        """Every line was known: worth remembering as a whole."""
        if len(lines) > limits.HEAD_FIELDS:
            raise ProtocolError("too many fields", Reason.OVER_LIMIT, 431)
        options: list[bytes] = []
        for line in lines:
            field = known_line(line)
            if field is None:
                field = field_of_line(line)
                self.is_familiar = False
            kind = field.kind
            if not kind:
                self.fields.append(field)
            elif kind == CONNECTION:
                options += [option.strip(b" \t") for option in field.value.lower().split(b",")]
            elif kind != HOP:
                self._note(field, kind)
        self.closes = b"close" in options
        if b"upgrade" not in options:
            self.upgrade = b""
        if self.is_chunked and self.length != UNKNOWN:
            raise ProtocolError("both length and chunked")  # RFC 9112 section 6.3: a smuggler's mark

    def _note(self, field: Field, kind: int) -> None:
        value = field.value
        if kind == HOST:
            if self.authority is not None:
                raise ProtocolError("second host")
            self.authority = value
        elif kind == CONTENT_LENGTH:
            if self.length != UNKNOWN:
                raise ProtocolError("second content-length")
            self.length = int(value)
            self.fields.append(field)
        elif kind == TRANSFER_ENCODING:
            if self.is_chunked or value.lower() != b"chunked":
                raise ProtocolError("transfer-encoding not understood", status=501)
            self.is_chunked = True
        elif kind == UPGRADE:
            self.upgrade = value
        elif kind == TE:
            self.takes_trailers = b"trailers" in value.lower()
        elif kind == MALFORMED:
            raise ProtocolError("bad header line")


_blocks: dict[bytes, HeaderBlock] = {}


def header_block(text: bytes) -> HeaderBlock:
    """The judged form of the header lines between the start line and the empty line."""
    block = _blocks.get(text)
    if block is None:
        block = HeaderBlock(text.split(b"\r\n") if text else [])
        if block.is_familiar:
            if len(_blocks) >= limits.CACHED_BLOCKS:
                _blocks.clear()
            _blocks[text] = block
    return block


def read_request(start_line: bytes, block: HeaderBlock) -> RequestHead:
    match = _request_line(start_line)
    if match is None:
        raise ProtocolError("bad request line")
    method, target, minor = match.groups()
    scheme = b"http"
    authority = block.authority
    if target[0] != 0x2F:
        absolute = _absolute(target)
        if absolute is not None:
            scheme, authority, target = absolute.groups()
            target = target or b"/"
        elif target != b"*" or method != b"OPTIONS":
            raise ProtocolError("bad request target")
    size = block.length
    if size == UNKNOWN and not block.is_chunked:
        size = 0
    is_http_1_1 = minor == b"1"
    if not is_http_1_1 and block.is_chunked:
        raise ProtocolError("chunked in HTTP/1.0")
    if authority is None:
        if is_http_1_1:
            raise ProtocolError("no host")
        authority = b""
    head = RequestHead(method, scheme, authority, target, block.fields.copy(), size)
    if block.upgrade and is_http_1_1:
        head.upgrade = block.upgrade
    if block.takes_trailers:
        head.takes_trailers = True
    return head


def read_response(start_line: bytes, block: HeaderBlock, method: bytes) -> ResponseHead:
    """The head of a response to `method`."""
    match = _status_line(start_line)
    if match is None:
        raise ProtocolError("bad status line")
    status = int(match[1])
    size = block.length
    if status == 101:
        size = TUNNEL
    elif status < 200 or status == 204 or status == 304 or method == b"HEAD":
        size = 0
    head = ResponseHead(status, block.fields.copy(), size)
    if block.upgrade:
        head.upgrade = block.upgrade
    return head


def write_request(head: RequestHead) -> bytes:
    parts = [b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (head.method, head.path, head.authority)]
    parts += [field.line for field in head.fields]
    if head.body_size == UNKNOWN:
        parts.append(b"Transfer-Encoding: chunked\r\n\r\n")
    elif head.upgrade:
        parts.append(b"Connection: upgrade\r\nUpgrade: %b\r\n\r\n" % head.upgrade)
    else:
        parts.append(b"\r\n")
    return b"".join(parts)


def write_response(head: ResponseHead, framing: bytes) -> bytes:
    """`framing` is the codec's own: `Connection` and `Transfer-Encoding` lines."""
    parts = [_STATUS_LINES.get(head.status) or b"HTTP/1.1 %d \r\n" % head.status]
    parts += [field.line for field in head.fields]
    parts.append(framing)
    return b"".join(parts)
