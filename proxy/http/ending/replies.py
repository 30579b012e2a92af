"""Answers that are made here instead of by an endpoint, in the form that the client understands.

One shape for every error (docs/linkerd/inbound.md, section 11; docs/linkerd/outbound.md,
section 10). `connection: close` is written by the codec, so the caller
that gives a closing answer to `Exchange.reply` must set `closes` there too.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.http.head import HTTP_2, RequestHead, ResponseHead
from proxy.http.headers import L5D, PLAIN, Field, field

_is_text = re.compile(r"[\t\x20-\x7e]*").fullmatch

GRPC_TYPE: Final = b"application/grpc"

_EMPTY: Final = field(b"content-length", b"0")
_TYPE: Final = field(b"content-type", GRPC_TYPE)
_WEB_TYPE: Final = b"application/grpc-web"
_CLOSES: Final = field(b"l5d-proxy-connection", b"close")


PROXY_MARKS: Final = (b"l5d-proxy-error", b"l5d-proxy-connection")
"""The fields that mark an answer as made by a proxy; they count only if a proxy sent them."""


def without_proxy_marks(head: ResponseHead) -> ResponseHead:
    """An app's response without these fields, because an app is not a proxy."""
    return head.with_fields([one for one in head.fields if one.name not in PROXY_MARKS])


def is_grpc(request: RequestHead) -> bool:
    """Whether its client expects errors in `grpc-status`: it came over HTTP/2 with a gRPC content type."""
    if request.version != HTTP_2:
        return False
    return any(one.name == b"content-type" and one.value.startswith(GRPC_TYPE) for one in request.fields)


def answer(request: RequestHead, status: int, grpc_code: int, text: str, informs: bool, closes: bool) -> ResponseHead:
    """The head of an empty answer.

    `informs`: the client may read why (outbound: always; inbound: meshed clients). `closes`: the error is fatal, and the
    connection of a meshed client is to go with it. A text that a field cannot carry becomes `unexpected error`.
    """
    value = (text if _is_text(text) else "unexpected error").encode("ascii").strip(b" \t")
    fields: list[Field] = [_EMPTY]
    if is_grpc(request):
        status = 200
        fields.append(_type_for(request))
        fields.append(field(b"grpc-status", b"%d" % grpc_code))
        if informs:
            fields.append(Field(b"grpc-message", value, PLAIN, False, b"", b""))
    head = ResponseHead(status, fields, 0)
    if informs:
        fields.append(Field(b"l5d-proxy-error", value, L5D, False, b"", b""))
        head.has_l5d = True
        if closes:
            fields.append(_CLOSES)
    head.version = request.version
    return head


def _type_for(request: RequestHead) -> Field:
    """gRPC-Web's clients take an answer of their own type only."""
    for one in request.fields:
        if one.name == b"content-type" and one.value.startswith(_WEB_TYPE):
            return one
    return _TYPE


def grpc_trailers(code: int, text: str) -> list[Field]:
    """The end of a gRPC call whose response has begun; `text` is one of ours, in ASCII, or empty for a client that may not
    read why."""
    status = field(b"grpc-status", b"%d" % code)
    return [status, Field(b"grpc-message", text.encode("ascii"), PLAIN, False, b"", b"")] if text else [status]


def redirect(request: RequestHead, status: int, location: bytes, text: str, informs: bool) -> ResponseHead:
    """A redirection; a gRPC client gets NOT_FOUND and no location."""
    head = answer(request, status, 5, text, informs, False)
    if not is_grpc(request):
        head.fields.append(field(b"location", location))
    return head
