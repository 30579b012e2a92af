"""HTTP/1 heads: start lines, what a head means as a whole, and how heads are written.

Requests are read strictly: whatever two recipients could read differently is
refused. Responses are read as tolerantly as RFC 9112 asks of a proxy. The
header lines themselves are judged in `block.py`.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core import limits
from proxy.core.budget import Table
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.h1.block import HeaderBlock, TransferCodings, header_block
from proxy.http.head import HTTP_1_0, HTTP_1_1, TUNNEL, UNKNOWN, Renderings, RequestHead, ResponseHead
from proxy.http.headers import CONTENT_LENGTH, field, is_authority

SHARE_SHIFT: Final = 8


def share_of(before: bytes, after: bytes) -> int:
    """What the head between these two takes of `limits.TURN_HEADS`: one for every 256 octets, which may hold as many as
    fifty fields."""
    return 1 + (len(before) - len(after) >> SHARE_SHIFT)


_request_line = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])").fullmatch
_other_version = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+ [\x21-\x7e\x80-\xff]+ HTTP/[0-9]\.[0-9]").fullmatch
_status_line = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?").fullmatch
_absolute = re.compile(rb"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#]+)(.*)", re.DOTALL).fullmatch

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


def over_limit(data: bytes) -> ProtocolError:
    """The error for a request head that is longer than our limit."""
    if data.find(b"\n", 0, limits.HEAD_BYTES) < 0:
        return ProtocolError(
            f"the request line is over the limit of {limits.HEAD_BYTES} octets", Reason.OVER_LIMIT, 414
        )
    return ProtocolError(f"the request's head is over the limit of {limits.HEAD_BYTES} octets", Reason.OVER_LIMIT, 431)


_requests: Final[Table[bytes, tuple[RequestHead, bool, bool]]] = Table("http1_requests", limits.HEADS_BYTES, 1000, 4)
known_request: Final = _requests.recent.get
"""What `read_request` made of this text the last time, if it may come often: all of it had come before then."""


_request_lines: Final[Table[bytes, tuple[bytes, bytes, bool, bool]]] = Table(
    "http1_request_lines", limits.NAMES_BYTES, 350, 2
)
_response_lines: Final[Table[bytes, tuple[int, int, bytes]]] = Table("http1_status_lines", limits.NAMES_BYTES, 300, 2)
_known_request_line: Final = _request_lines.recent.get
_known_response_line: Final = _response_lines.recent.get


def _new_request_line(start_line: bytes) -> tuple[bytes, bytes, bool, bool]:
    """Method, target, whether the version is HTTP/1.1, and whether the method is CONNECT."""
    known = _request_lines.older.get(start_line)
    if known is not None:
        _request_lines.keep(start_line, known, len(start_line))
        return known
    match = _request_line(start_line)
    if match is None:
        if _other_version(start_line) is not None:
            raise ProtocolError("HTTP version not spoken here", status=505)
        raise ProtocolError(f"bad request line: {start_line[:100]!r}")
    found = (match[1], match[2], match[3] == b"1", match[1] == b"CONNECT")
    _request_lines.keep(start_line, found, len(start_line))
    return found


def check_begun(data: bytes) -> None:
    """Raise if a head that has begun with `data` cannot become that of a request. Without this a client of another protocol would
    get its 400 only when the time for the head is over.
    """
    end = data.find(b"\n")
    if end >= 0:
        line = data[:end].removesuffix(b"\r")
        if _known_request_line(line) is None:
            _new_request_line(line)
    elif data[0] < 0x20 and data[0] not in b"\r\n":
        raise ProtocolError(f"bad request line: {data[:20]!r}")
    if len(data) > limits.HEAD_BYTES:
        raise over_limit(data)


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


def read_request(text: bytes) -> tuple[RequestHead, bool, bool]:
    """The head of a request, whether the connection closes behind its answer, and whether the target has a form that the
    method may have (RFC 9112 section 3.2). `text` is without the empty line.

    ProtocolError if nothing after it could be trusted.
    """
    start_line, _, lines = text.partition(b"\r\n")
    line = _known_request_line(start_line)
    is_line_known = line is not None
    method, target, is_http_1_1, is_connect = line or _new_request_line(
        start_line
    )  # before the fields, as when the head comes in pieces
    block = header_block(lines)
    authority = block.authority
    size = block.length
    transfer = block.transfer
    if transfer is not None:
        _check_transfer(transfer, size)
    elif size == UNKNOWN:
        size = 0
    if authority is None and is_http_1_1 and not is_connect:
        raise ProtocolError("no host")
    head = RequestHead(method, b"http", authority or b"", target, block.fields, size)
    head.has_host = authority is not None
    if not is_http_1_1:
        if transfer is not None:
            raise ProtocolError("chunked in HTTP/1.0")
        head.version = HTTP_1_0
    elif is_connect:
        if transfer is not None or block.length != UNKNOWN:
            # It has no body (RFC 9110 section 9.3.6): what follows is the tunnel's for one reader, the body's for another.
            raise ProtocolError("CONNECT with content-length or transfer-encoding")
        head.wants_tunnel = True
    elif block.upgrade:
        head.wants_tunnel = True
        head.upgrade = block.upgrade
        head.fields = block.hop_fields
    elif block.is_unchanged and target[0] == 0x2F:
        head.text = text
    head.takes_trailers = block.takes_trailers
    head.has_l5d = block.has_l5d
    is_good = not is_connect if target[0] == 0x2F else _read_target(head, target)
    head.needs_own_connection = not head.authority or not is_http_1_1 or (head.is_absolute and not authority)
    found = (head, block.closes or not is_http_1_1, is_good)
    if not block.has_come_before:
        block.has_come_before = True
    elif is_line_known and is_good and not head.wants_tunnel and not head.needs_own_connection:
        head.renderings = Renderings()
        _requests.keep(text, found, len(text))
    return found


def _check_transfer(transfer: TransferCodings, size: int) -> None:
    """Raise unless it is what a request may say; `size` is its content-length."""
    if not transfer.is_only_chunked:
        raise ProtocolError("transfer-encoding not understood")
    if size != UNKNOWN:
        raise ProtocolError("both content-length and transfer-encoding")  # RFC 9112 section 6.3: a smuggler's mark


def _read_target(head: RequestHead, target: bytes) -> bool:
    """Read a target that is not a path."""
    head.target = target
    if head.method == b"CONNECT":
        has_host = head.has_host
        if target.lower().startswith(head.authority.lower() + b":"):
            head.authority = target  # many clients say the host alone in Host
        else:
            head.take_authority(target)
        head.path = b""
        is_whole = has_host and head.version != HTTP_1_0
        return is_whole and is_authority(target) is not None and target != b"*"
    match = _absolute(target)
    if match is None:
        head.target = b""
        return target == b"*" and head.method == b"OPTIONS"
    scheme, authority, path = match.groups()
    head.take_authority(authority)
    head.scheme = scheme.lower()
    head.is_absolute = True
    if path[:1] == b"/":
        head.path = path
    elif head.method == b"OPTIONS" and not path:
        head.path = b"*"
    else:
        head.path = b"/" + path
    return is_authority(head.authority) is not None


_responses: Final[Table[bytes, ResponseHead]] = Table("http1_responses", limits.HEADS_BYTES, 1000, 4)
known_response: Final = _responses.recent.get
"""The head that this text is in answer to any method but HEAD and CONNECT, if it may come often: then it has a length, and
its connection may be used again."""


def remember_response(text: bytes, block: HeaderBlock, head: ResponseHead) -> None:
    """Remember, for `known_response`, a head that came as a whole before."""
    if not block.has_come_before:
        block.has_come_before = True
    elif head.body_size > 0 and not block.keep_alive_s:
        head.renderings = Renderings()
        _responses.keep(text, head, len(text))


def read_response(start_line: bytes, block: HeaderBlock, method: bytes) -> ResponseHead:
    """The head of a response to `method`. ProtocolError if it is not one."""
    status, version, phrase = _known_response_line(start_line) or _new_response_line(start_line)
    size = block.length
    transfer = block.transfer
    if transfer is not None and transfer.decides:
        size = UNKNOWN
    if status < 200 or status == 204 or status == 304:
        size = TUNNEL if status == 101 else 0
    elif method == b"HEAD":
        size = 0
    elif method == b"CONNECT" and status < 300:
        size = TUNNEL
    if status == 101 and block.names_http:
        raise ProtocolError("a tunnel for HTTP")
    head = ResponseHead(status, block.hop_fields if status == 101 else block.fields, size)
    head.version = version
    head.phrase = phrase
    head.upgrade = block.upgrade
    head.has_date = block.has_date
    head.has_l5d = block.has_l5d
    if transfer is not None and size != TUNNEL and size:
        _note_codings(head, transfer)
    is_length_void = size == TUNNEL or status < 200 or status == 204 or (transfer is not None and transfer.decides)
    if is_length_void and block.length != UNKNOWN:
        # Where it means nothing, or contradicts what means more (RFC 9112 section 6.3, RFC 9110 section 8.6).
        head.fields = [one for one in head.fields if one.kind != CONTENT_LENGTH]
    return head


def _note_codings(head: ResponseHead, transfer: TransferCodings) -> None:
    """The body stays encoded by all codings but chunked; for its reader, who may be behind HTTP/2, they are content
    codings.
    """
    if transfer.error:
        raise ProtocolError(transfer.error)
    known = [one.value.lower() for one in head.fields if one.name == b"content-encoding"]
    head.fields = [*head.fields, *(field(b"content-encoding", one) for one in transfer.others if one not in known)]


def may_be_followed(head: ResponseHead, block: HeaderBlock) -> bool:
    """Whether another response may follow this one on its connection.

    That is not so if the app may see the end of this one elsewhere than we do: then a part of its body would answer
    another client's request.
    """
    if block.closes or head.version == HTTP_1_0:
        return False
    transfer = block.transfer
    if transfer is None:
        return head.status != 204 or block.length <= 0
    return transfer.is_only_chunked and block.length == UNKNOWN and head.status != 204


def write_request(head: RequestHead, is_chunked: bool = False) -> bytes:
    """The head as an HTTP/1 endpoint gets it: of the client's version, Host made from the authority if need be."""
    renderings = None if is_chunked else head.renderings
    if renderings is not None and renderings.http1:
        return renderings.http1
    if head.text and not is_chunked:
        written = head.text + b"\r\n\r\n"
    else:
        written = _composed_request(head, is_chunked)
    if renderings is not None:
        renderings.http1 = written
    return written


def _composed_request(head: RequestHead, is_chunked: bool) -> bytes:
    target = head.target or (head.absolute_form() if head.is_absolute else head.path)
    if head.version == HTTP_1_0 and not is_chunked:
        parts = [b"%b %b HTTP/1.0\r\n" % (head.method, target)]
    elif head.has_host:
        parts = [b"%b %b HTTP/1.1\r\n" % (head.method, target)]
    else:
        parts = [b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (head.method, target, head.authority)]
    parts += [field.line for field in head.fields]
    if head.takes_trailers:
        parts.append(b"TE: trailers\r\n" if head.upgrade else b"TE: trailers\r\nConnection: TE\r\n")
    parts.append(b"Transfer-Encoding: chunked\r\n\r\n" if is_chunked else b"\r\n")
    return b"".join(parts)


def write_response(head: ResponseHead, framing: bytes, is_http_1_0: bool) -> bytes:
    """`framing` is added by the codec: `Date`, `Connection` and `Transfer-Encoding` lines, and the empty line."""
    renderings = None if is_http_1_0 or framing != _NO_FRAMING else head.renderings
    if renderings is not None and renderings.http1:
        return renderings.http1
    status = head.status
    if head.phrase or is_http_1_0:
        phrase = head.phrase or _PHRASES.get(status, b"")
        line = b"HTTP/1.%d %d %b\r\n" % (not is_http_1_0, status, phrase)
    else:
        line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    parts = [line]
    parts += [field.line for field in head.fields]
    parts.append(framing)
    written = b"".join(parts)
    if renderings is not None:
        renderings.http1 = written
    return written


_NO_FRAMING: Final = b"\r\n"
