"""HTTP/1 carried over HTTP/2 between proxies, and back (`l5d-orig-proto`; reference: inbound section 9, outbound section 9.3).

Law: pure functions on heads. The client's proxy marks a request (`upgrade`)
and leaves its version as the client spoke it; the app's proxy makes it an
HTTP/1 request again (`downgrade`). Of responses the codecs take care: an
HTTP/2 server stream whose request is HTTP/1 marks its response, and an
HTTP/2 client never lets the mark through (`version_of`).
"""

from __future__ import annotations

from typing import Final

from proxy.core.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.h2.codes import text_of
from proxy.http.head import HTTP_1_0, HTTP_1_1, HTTP_2, RequestHead, ResponseHead
from proxy.http.headers import L5D, Field, field

NAME: Final = b"l5d-orig-proto"
_ABSOLUTE: Final = b"absolute-form"

_MARKS: Final[dict[tuple[int, bool], Field]] = {
    (HTTP_1_1, False): field(NAME, b"HTTP/1.1"),
    (HTTP_1_1, True): field(NAME, b"HTTP/1.1; absolute-form"),
    (HTTP_1_0, False): field(NAME, b"HTTP/1.0"),
    (HTTP_1_0, True): field(NAME, b"HTTP/1.0; absolute-form"),
}
_RESPONSE_MARKS: Final[dict[int, Field]] = {HTTP_1_1: _MARKS[HTTP_1_1, False], HTTP_1_0: _MARKS[HTTP_1_0, False]}


def is_carriable(request: RequestHead) -> bool:
    """HTTP/1, and not a request for a tunnel: that takes an HTTP/1 connection of its own."""
    return request.version != HTTP_2 and not request.wants_tunnel


def is_carried(request: RequestHead) -> bool:
    """The mark is among the fields."""
    return request.has_l5d and any(one.name == NAME for one in request.fields)


def upgrade(request: RequestHead) -> None:
    """Mark an HTTP/1 request for its way over HTTP/2. A mark that the client brought itself is replaced."""
    if request.has_l5d:
        request.fields = [one for one in request.fields if one.name != NAME]
    request.fields.append(_MARKS[request.version, request.is_absolute])
    request.has_l5d = True


def downgrade(exchange: Exchange) -> None:
    """The request as its client spoke it, if it was carried; any other is left alone."""
    downgrade_request(exchange.request)


def downgrade_request(request: RequestHead) -> None:
    """Take the mark off a carried request and believe it. An unknown version stays HTTP/2."""
    if request.version != HTTP_2 or not request.has_l5d:
        return
    mark: bytes | None = None
    kept: list[Field] = []
    has_l5d = False
    for one in request.fields:
        if one.kind != L5D:
            kept.append(one)
        elif one.name != NAME:
            has_l5d = True
            kept.append(one)
        elif mark is None:
            mark = one.value
    if mark is None:
        return
    request.fields = kept
    request.has_l5d = has_l5d
    version = version_of(mark)
    if version == HTTP_2:
        return
    request.version = version
    if request.has_host:
        # From a proxy that carries HTTP/1: two cookie fields are two lines that its client wrote (golden: http1-pair,
        # get). Without Host it is HTTP/2's own, whose crumbs are joined.
        request.has_crumbs = False
    if mark[10:23] == _ABSOLUTE:
        request.is_absolute = True
        request.target = request.absolute_form()
    request.is_lonely = version == HTTP_1_0 or not request.authority


def mark_response(head: ResponseHead) -> Field | None:
    """The field that says a response was HTTP/1, or None if it was not."""
    return _RESPONSE_MARKS.get(head.version)


def version_of(mark: bytes) -> int:
    """What the value of the mark says; HTTP_2 if it says nothing that we know."""
    if mark.startswith(b"HTTP/1.1"):
        return HTTP_1_1
    return HTTP_1_0 if mark.startswith(b"HTTP/1.0") else HTTP_2


def downgraded_error(reason: Reason, code: int) -> str | None:
    """What a carried request says when its HTTP/2 stream failed; None if it was not HTTP/2 that failed."""
    if reason is Reason.PEER_RESET or reason is Reason.PEER_REFUSED:
        return f"upgraded connection failed with HTTP/2 reset: {text_of(code)}"
    return None
