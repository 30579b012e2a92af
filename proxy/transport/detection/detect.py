"""HTTP detection: what the first bytes of a connection are (docs/linkerd/inbound.md, section 2).

`sniff` is Linkerd's rule on one read, fewer than 14 bytes included.
DetectRule departs from it in three cases:

- The rule takes a client that sends `GET` and the rest of its request a moment
  later for opaque TCP, which no route and no rate limit sees. DetectRule waits
  for more, as long as for a client that sends nothing. If nothing comes even
  then, the client has still begun a request, and HTTP tells it what is missing.
- The rule takes any run of token characters for a method whose line has not
  come yet, so that `hello-to-the-server` and a megabyte of `x` would wait for
  the rest of a request. DetectRule waits for limits.FIRST_WORD_S until the bytes say
  more: a line, or a method and a target. The usual methods are no such words.
- A request whose line cannot be read, `GET /a b HTTP/1.1` for one, would be
  passed on without being seen when it is the first of its connection, and be
  answered 400 when it is the second. It is HTTP both times.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, Literal

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.transport.detection.first_bytes import Came, Rule

_SHORTEST_BYTES: Final = 14
"""The length of `GET / HTTP/1.1`, which is shorter than PREFACE."""
_PREFACE: Final = b"PRI * HTTP/2.0"
_LONGEST_BYTES: Final = 1024
"""Linkerd looks at no more."""

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_TARGET: Final = rb"[\x21-\x7e\x80-\xff]"
_REQUEST_LINE: Final = re.compile(
    rb"(?:\r?\n)*" + _TOKEN + rb"+ " + _TARGET + rb"+ HTTP/1\.[01]\r?\n",
)
_UNREADABLE_LINE: Final = re.compile(
    rb"(?:\r?\n)*(?:(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT)(?=[ \t])[^\r\n]*[ \t]|"
    + _TOKEN
    + rb"+ "
    + _TARGET
    + rb"+ )HTTP/[0-9]{1,3}(?:\.[0-9]{1,3})*[ \t]*\r?\n"
)
"""A line that begins and ends as a request's does, whatever is between, in whatever version: there are servers that answer
HTTP/1.2 as they answer HTTP/1.1, and what is passed on as bytes meets no route. The first line of no other protocol does
both; one end alone may be the text of a log that is shipped.
"""
_METHOD_AND_TARGET: Final = re.compile(
    rb"(?:\r?\n)*(?:CONNECT .|" + _TOKEN + rb"{1,32} (?:/|\*|[A-Za-z][A-Za-z0-9+.\-]*:))"
)
"""Whether a request has begun, though its line has not ended."""
_BEGINNING: Final = re.compile(
    rb"(?:\r?\n)*\r?(?:"
    + _TOKEN
    + rb"+(?: (?:"
    + _TARGET
    + rb"+(?: (HTTP/1\.[01]\r?|H|HT|HTT|HTTP|HTTP/|HTTP/1|HTTP/1\.)?)?)?)?)?"
)

_BEGUN: Final = re.compile(
    rb"(?:\r?\n)*\r?(?:(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT) ?"
    rb"|G|GE|H|HE|HEA|P|PO|POS|PU|D|DE|DEL|DELE|DELET|O|OP|OPT|OPTI|OPTIO|OPTION|PA|PAT|PATC|T|TR|TRA|TRAC"
    rb"|C|CO|CON|CONN|CONNE|CONNEC)?"
)
"""A usual method or its beginning, and the empty lines that servers skip before it. No text for another protocol stops there."""

Sniffed = Literal["http1", "http2", "opaque"]


def sniff(first: bytes) -> Sniffed:
    """What the first read of a connection shows. HTTP/1 is a request line, whole or begun (RFC 9112, section 3, with
    the leniency of the parser that Linkerd uses: empty lines before it, a bare LF at its end).
    """
    if len(first) < _SHORTEST_BYTES:
        return "opaque"
    if first.startswith(_PREFACE):
        return "http2"
    return "http1" if _is_request(first[:_LONGEST_BYTES]) else "opaque"


def _is_request(first: bytes) -> bool:
    return _REQUEST_LINE.match(first) is not None or _BEGINNING.fullmatch(first) is not None


def may_become_http(first: bytes) -> bool:
    """Whether more bytes may make this HTTP: it is too short to decide, and every byte fits."""
    return len(first) < _SHORTEST_BYTES and (_PREFACE.startswith(first) or _is_request(first))


class Detection(Enum):
    HTTP1 = "http/1"
    HTTP2 = "http/2"
    NOT_HTTP = "not_http"
    READ_TIMEOUT = "read_timeout"
    ERROR = "error"
    """EOF before the first byte (`socket closed before protocol detection`), or the connection is gone."""


_DETECTIONS: Final[dict[str, Detection]] = {
    "http1": Detection.HTTP1,
    "http2": Detection.HTTP2,
    "opaque": Detection.NOT_HTTP,
}


class DetectRule:
    """HTTP by its first bytes, for `first_bytes.FirstBytes`."""

    __slots__ = ()

    def patience_s(self, first: bytes) -> float:
        return 0.0 if _has_begun(first) else limits.FIRST_WORD_S

    def judge(self, first: bytes, came: Came | Reason) -> Detection | None:
        if came is Came.BYTES:
            if may_become_http(first) or (len(first) < _LONGEST_BYTES and _is_vague(first)):
                return None
            return _detection(first)
        if came is Came.TIMEOUT:
            if not first:
                return Detection.READ_TIMEOUT
            if not _has_begun(first):
                return Detection.NOT_HTTP
            return Detection.HTTP2 if first.startswith(b"PR") and _PREFACE.startswith(first) else Detection.HTTP1
        if came is Came.END and first:
            return _detection(first)
        return Detection.ERROR


def _detection(first: bytes) -> Detection:
    sniffed = sniff(first)
    if sniffed == "opaque":
        return Detection.HTTP1 if _UNREADABLE_LINE.match(first[:_LONGEST_BYTES]) is not None else Detection.NOT_HTTP
    if sniffed == "http1" and _is_vague(first):
        return Detection.NOT_HTTP
    return _DETECTIONS[sniffed]


def _has_begun(first: bytes) -> bool:
    """Whether these bytes, which more may make HTTP, are the beginning of a request or of HTTP/2 rather than any word."""
    if _PREFACE.startswith(first) or _BEGUN.fullmatch(first) is not None:
        return True
    return _METHOD_AND_TARGET.match(first) is not None


def _is_vague(first: bytes) -> bool:
    """Whether this could begin a request only in the way any word could: it may as well be another protocol's."""
    return _METHOD_AND_TARGET.match(first) is None and _BEGINNING.fullmatch(first[:_LONGEST_BYTES]) is not None


DETECT_HTTP: Final[Rule[Detection]] = DetectRule()
