"""HTTP/1 heads: read strictly, write from interned lines.

Law: a block of header lines met before is one lookup; else each line is one
lookup; what that does not know is judged by one strict expression (RFC 9112,
and no obs-fold, no bare CR, no second or contradictory length). A bare LF
ends a line of a head, as section 2.2 allows, by being made a CRLF first.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core import limits
from proxy.core.budget import Table
from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason
from proxy.http.head import HTTP_1_0, HTTP_1_1, TUNNEL, UNKNOWN, RequestHead, ResponseHead
from proxy.http.headers import (
    CONNECTION,
    CONTENT_LENGTH,
    DATE,
    HOP,
    HOST,
    L5D,
    MALFORMED,
    PLAIN,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    Field,
    field_of_line,
    is_authority,
    known_line,
)

_request_line = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])").fullmatch
_other_version = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+ [\x21-\x7e\x80-\xff]+ HTTP/[0-9]\.[0-9]").fullmatch
_status_line = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?").fullmatch
_absolute = re.compile(rb"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#]+)(.*)", re.DOTALL).fullmatch
_head_end = re.compile(rb"\n\r?\n").search
_line_end = re.compile(rb"\r?\n")
_empty_lines = re.compile(rb"(?:\r?\n)+").match
_repeated_length = re.compile(rb"(?im)^(content-length:[ \t]*)([0-9]+)(?:[ \t]*,[ \t]*\2)+[ \t]*\r\n")

_CONNECTION: Final = field_of_line(b"Connection: Upgrade")

_PHRASES: Final[dict[int, bytes]] = {
    100: b"Continue", 101: b"Switching Protocols", 102: b"Processing", 103: b"Early Hints", 200: b"OK", 201: b"Created",
    202: b"Accepted", 203: b"Non-Authoritative Information", 204: b"No Content", 205: b"Reset Content",
    206: b"Partial Content", 300: b"Multiple Choices", 301: b"Moved Permanently", 302: b"Found", 303: b"See Other",
    304: b"Not Modified", 307: b"Temporary Redirect", 308: b"Permanent Redirect", 400: b"Bad Request",
    401: b"Unauthorized", 402: b"Payment Required", 403: b"Forbidden", 404: b"Not Found", 405: b"Method Not Allowed",
    406: b"Not Acceptable", 407: b"Proxy Authentication Required", 408: b"Request Timeout", 409: b"Conflict",
    410: b"Gone", 411: b"Length Required", 412: b"Precondition Failed", 413: b"Payload Too Large", 414: b"URI Too Long",
    415: b"Unsupported Media Type", 416: b"Range Not Satisfiable", 417: b"Expectation Failed", 418: b"I'm a teapot",
    421: b"Misdirected Request", 422: b"Unprocessable Entity", 425: b"Too Early", 426: b"Upgrade Required",
    428: b"Precondition Required", 429: b"Too Many Requests", 431: b"Request Header Fields Too Large",
    451: b"Unavailable For Legal Reasons", 500: b"Internal Server Error", 501: b"Not Implemented", 502: b"Bad Gateway",
    503: b"Service Unavailable", 504: b"Gateway Timeout", 505: b"HTTP Version Not Supported", 508: b"Loop Detected",
    511: b"Network Authentication Required",
}  # fmt: skip
_STATUS_LINES: Final[dict[int, bytes]] = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, phrase) for status, phrase in _PHRASES.items()
}


class HeaderBlock:
    """What the header lines of one head say: the fields that travel on, and facts for the codec.

    Remembered by its text, like an HPACK block, so it is never changed.
    """

    __slots__ = (
        "fields", "hop_fields", "authority", "length", "is_chunked", "closes", "upgrade", "takes_trailers", "has_date",
        "has_l5d", "is_familiar",
    )  # fmt: skip

    def __init__(self, lines: list[bytes]) -> None:
        self.fields: list[Field] = []
        self.hop_fields: list[Field] = self.fields
        """The same and, in their places, Connection and Upgrade: what an upgrade takes along."""
        self.authority: bytes | None = None
        """Of Host; None if there is none."""
        self.length = UNKNOWN
        self.is_chunked = False
        self.closes = False
        self.upgrade = b""
        self.takes_trailers = False
        self.has_date = False
        self.has_l5d = False
        self.is_familiar = True
        """Every line was known: worth remembering as a whole."""
        if len(lines) > limits.HEAD_FIELDS:
            raise ProtocolError(f"the head is over the limit of {limits.HEAD_FIELDS} fields", Reason.OVER_LIMIT, 431)
        options: list[bytes] = []
        fields = self.fields
        has_hops = False
        for line in lines:
            field = known_line(line)
            if field is None:
                field = field_of_line(line)
                self.is_familiar = False
            kind = field.kind
            if not kind or self._note(field, kind):
                fields.append(field)
            elif kind == CONNECTION or kind == UPGRADE or kind == HOP:
                has_hops = True
                if kind == CONNECTION:
                    options += [option.strip(b" \t") for option in field.value.lower().split(b",")]
                fields.append(field)
        if has_hops:
            self._take_hops_out(options)

    def _note(self, field: Field, kind: int) -> bool:
        """Take notice of a field that is more than text; True if it travels on."""
        value = field.value
        if kind == HOST:
            if self.authority is not None:
                raise ProtocolError("second host")
            self.authority = value
            return True
        if kind == CONTENT_LENGTH:
            length = int(value)
            if self.length == length:
                return False  # said twice, sent once (RFC 9110 section 8.6)
            if self.length != UNKNOWN:
                raise ProtocolError("two content-lengths that differ")
            self.length = length
            return True
        if kind == DATE:
            self.has_date = True
            return True
        if kind == L5D:
            self.has_l5d = True
            return True
        if kind == TRANSFER_ENCODING:
            if self.is_chunked or value.lower() != b"chunked":
                raise ProtocolError("transfer-encoding not understood")
            self.is_chunked = True
        elif kind == UPGRADE:
            self.upgrade = self.upgrade + b", " + value if self.upgrade else value
        elif kind == TE:
            options = [option.strip(b" \t") for option in value.lower().split(b",")]
            self.takes_trailers = self.takes_trailers or b"trailers" in options
        elif kind == MALFORMED:
            raise ProtocolError("bad header line")
        return False

    def _take_hops_out(self, options: list[bytes]) -> None:
        """Without what Connection names, but for what a client must not take from us: Host, framing, the mesh's own.

        An Upgrade that Connection does not name is none (RFC 9110 section 7.8), but for a client that says no Connection
        at all, as Linkerd has it (reference: outbound, section 5.2).
        """
        self.closes = b"close" in options
        if options and b"upgrade" not in options:
            self.upgrade = b""
        self.hop_fields = [
            one
            for one in self.hop_fields
            if one.kind != HOP and not ((one.kind == PLAIN or one.kind == DATE) and one.name in options)
        ]
        self.fields = [one for one in self.hop_fields if one.kind != CONNECTION and one.kind != UPGRADE]
        if options and options != [b"upgrade"]:
            self.hop_fields = [one for one in self.hop_fields if one.kind != CONNECTION]
            self.hop_fields.append(_CONNECTION)
        if self.has_date:
            self.has_date = any(one.kind == DATE for one in self.fields)


_blocks: Final[Table[bytes, HeaderBlock]] = Table("http1_blocks", limits.HEADS_BYTES, 700, 2)
_known_block: Final = _blocks.recent.get


def header_block(text: bytes) -> HeaderBlock:
    """The judged form of the header lines between the start line and the empty line."""
    block = _known_block(text)
    if block is None:
        block = _blocks.find(text, len(text))
        if block is None:
            block = HeaderBlock(text.split(b"\r\n") if text else [])
            if block.is_familiar:
                _blocks.keep(text, block, len(text))
    return block


def with_crlf(data: bytes) -> bytes | None:
    """`data` with the line ends of its head as CRLF; None if there is no whole head or nothing to change."""
    end = _head_end(data)
    if end is None:
        return None
    lines = _line_end.split(data[: end.start()].removesuffix(b"\r"))
    changed = b"\r\n".join(lines) + b"\r\n\r\n" + data[end.end() :]
    return None if changed == data else changed


def with_one_length(data: bytes) -> bytes | None:
    """`data` with a list of equal lengths in its head said once (RFC 9112 section 6.3, rule 5); None if there is none.

    For responses: a request that says `5, 5` is refused, as linkerd2-proxy does.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    changed, count = _repeated_length.subn(rb"\1\2\r\n", head + b"\r\n")
    return changed + end[2:] + rest if count else None


def skip_empty_lines(data: bytes) -> bytes:
    """Empty lines before a request line are ignored (RFC 9112 section 2.2)."""
    match = _empty_lines(data)
    return data[match.end() :] if match is not None else data


def over_limit(data: bytes) -> ProtocolError:
    """What to say of a request head that is longer than we take."""
    if data.find(b"\n", 0, limits.HEAD_BYTES) < 0:
        return ProtocolError(
            f"the request line is over the limit of {limits.HEAD_BYTES} octets", Reason.OVER_LIMIT, 414
        )
    return ProtocolError(f"the request's head is over the limit of {limits.HEAD_BYTES} octets", Reason.OVER_LIMIT, 431)


_request_lines: Final[Table[bytes, tuple[bytes, bytes, bytes]]] = Table(
    "http1_request_lines", limits.NAMES_BYTES, 350, 2
)
_response_lines: Final[Table[bytes, tuple[int, int, bytes]]] = Table("http1_status_lines", limits.NAMES_BYTES, 300, 2)
_known_request_line: Final = _request_lines.recent.get
_known_response_line: Final = _response_lines.recent.get


def _new_request_line(start_line: bytes) -> tuple[bytes, bytes, bytes]:
    """Method, target and minor version."""
    known = _request_lines.find(start_line, len(start_line))
    if known is not None:
        return known
    match = _request_line(start_line)
    if match is None:
        if _other_version(start_line) is not None:
            raise ProtocolError("HTTP version not spoken here", status=505)
        raise ProtocolError("bad request line")
    found = (match[1], match[2], match[3])
    _request_lines.keep(start_line, found, len(start_line))
    return found


def _new_response_line(start_line: bytes) -> tuple[int, int, bytes]:
    """Status, version, and the reason phrase if it is an unusual one."""
    known = _response_lines.find(start_line, len(start_line))
    if known is not None:
        return known
    match = _status_line(start_line)
    if match is None:
        raise ProtocolError("bad status line")
    status = int(match[2])
    phrase = match[3] or b""
    version = HTTP_1_1 if match[1] == b"1" else HTTP_1_0
    found = (status, version, b"" if phrase == _PHRASES.get(status) else phrase)
    _response_lines.keep(start_line, found, len(start_line))
    return found


def read_request(start_line: bytes, block: HeaderBlock) -> tuple[RequestHead, bool]:
    """The head of a request, and whether its target has a form that its method may have (RFC 9112 section 3.2).

    ProtocolError if nothing after it could be trusted.
    """
    method, target, minor = _known_request_line(start_line) or _new_request_line(start_line)
    authority = block.authority
    size = block.length
    if block.is_chunked:
        if size != UNKNOWN:
            raise ProtocolError("both content-length and transfer-encoding")  # RFC 9112 section 6.3: a smuggler's mark
    elif size == UNKNOWN:
        size = 0
    is_http_1_1 = minor == b"1"
    if authority is None and is_http_1_1:
        raise ProtocolError("no host")
    head = RequestHead(method, b"http", authority or b"", target, [], size)
    head.has_host = authority is not None
    if not is_http_1_1:
        if block.is_chunked:
            raise ProtocolError("chunked in HTTP/1.0")
        head.version = HTTP_1_0
    elif method == b"CONNECT":
        head.wants_tunnel = True
    elif block.upgrade and block.upgrade.lower() != b"h2c":
        head.wants_tunnel = True
        head.upgrade = block.upgrade
    head.fields = (block.hop_fields if head.upgrade else block.fields).copy()
    head.takes_trailers = block.takes_trailers
    head.has_l5d = block.has_l5d
    is_good = method != b"CONNECT" if target[0] == 0x2F else _read_target(head, target)
    head.is_lonely = not head.authority or not is_http_1_1 or (head.is_absolute and not authority)
    return head, is_good


def _read_target(head: RequestHead, target: bytes) -> bool:
    """A target that is no path."""
    head.target = target
    if head.method == b"CONNECT":
        head.authority = target
        head.path = b""
        return is_authority(target) is not None and target[0] not in b":*" and head.version != HTTP_1_0
    match = _absolute(target)
    if match is None:
        head.target = b""
        return target == b"*" and head.method == b"OPTIONS"
    scheme, head.authority, path = match.groups()
    head.scheme = scheme.lower()
    head.is_absolute = True
    if path[:1] == b"/":
        head.path = path
    elif head.method == b"OPTIONS" and not path:
        head.path = b"*"
    else:
        head.path = b"/" + path
    return is_authority(head.authority) is not None


def read_response(start_line: bytes, block: HeaderBlock, method: bytes) -> ResponseHead:
    """The head of a response to `method`. ProtocolError if it is none."""
    status, version, phrase = _known_response_line(start_line) or _new_response_line(start_line)
    size = block.length
    if status < 200 or status == 204 or status == 304:
        size = TUNNEL if status == 101 else 0
    elif method == b"HEAD":
        size = 0
    elif method == b"CONNECT" and status < 300:
        size = TUNNEL
    elif block.is_chunked:
        size = UNKNOWN
    head = ResponseHead(status, (block.hop_fields if status == 101 else block.fields).copy(), size)
    head.version = version
    head.phrase = phrase
    head.upgrade = block.upgrade
    head.has_date = block.has_date
    head.has_l5d = block.has_l5d
    if block.length != UNKNOWN and (block.is_chunked or size == TUNNEL or status < 200 or status == 204):
        # Where it means nothing, or contradicts what means more (RFC 9112 section 6.3, RFC 9110 section 8.6).
        head.fields = [one for one in head.fields if one.kind != CONTENT_LENGTH]
    return head


def write_request(head: RequestHead) -> bytes:
    """The head as an HTTP/1 endpoint gets it: of the client's version, Host made from the authority if need be."""
    size = head.body_size
    target = head.target or (head.absolute_form() if head.is_absolute else head.path)
    if head.version == HTTP_1_0 and size != UNKNOWN:
        parts = [b"%b %b HTTP/1.0\r\n" % (head.method, target)]
    elif head.has_host:
        parts = [b"%b %b HTTP/1.1\r\n" % (head.method, target)]
    else:
        parts = [b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (head.method, target, head.authority)]
    parts += [field.line for field in head.fields]
    if head.takes_trailers:
        parts.append(b"TE: trailers\r\n" if head.upgrade else b"TE: trailers\r\nConnection: TE\r\n")
    parts.append(b"Transfer-Encoding: chunked\r\n\r\n" if size == UNKNOWN else b"\r\n")
    return b"".join(parts)


def write_response(head: ResponseHead, framing: bytes, is_http_1_0: bool) -> bytes:
    """`framing` is the codec's own: `Date`, `Connection` and `Transfer-Encoding` lines, and the empty line."""
    status = head.status
    if head.phrase or is_http_1_0:
        phrase = head.phrase or _PHRASES.get(status, b"")
        line = b"HTTP/1.%d %d %b\r\n" % (not is_http_1_0, status, phrase)
    else:
        line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    parts = [line]
    parts += [field.line for field in head.fields]
    parts.append(framing)
    return b"".join(parts)
