"""Heads out of decoded fields, and fields out of heads: the rules of RFC 9113 section 8.

A head is judged as a whole when its block is new; what the text of a single
field decides was decided when the field was interned. A head that breaks the
form is malformed (ProtocolError, and the stream is reset); for one that is well
formed and cannot be served the error has the status of the answer.
"""

from __future__ import annotations

from binascii import b2a_base64
from random import getrandbits
from typing import Final

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http import orig_proto
from proxy.http.fields.upgrades import names_http
from proxy.http.head import HTTP_2, UNKNOWN, RequestHead, ResponseHead
from proxy.http.headers import (
    CONNECTION,
    CONTENT_LENGTH,
    COOKIE,
    DATE,
    DROPPED,
    HOP,
    HOST,
    L5D,
    PSEUDO,
    TE,
    UPGRADE,
    Field,
    field,
)

_SLOTS: Final = {b":method": 0, b":scheme": 1, b":authority": 2, b":path": 3, b":protocol": 4}

_NO_LENGTH: Final = -1


def is_answered(error: ProtocolError) -> bool:
    """The request is well formed: it gets `error.status`, not a reset."""
    return error.reason is Reason.OVER_LIMIT or error.reason is Reason.BAD_AUTHORITY or error.reason is Reason.BAD_HEAD


def request_of(fields: list[Field]) -> RequestHead:
    """A request head from its decoded fields, or ProtocolError if they do not make one."""
    pseudo: list[bytes | None] = [None, None, None, None, None]
    regular: list[Field] = []
    size = 0
    crumbs = 0
    head = RequestHead(b"", b"", b"", b"", regular, UNKNOWN)
    for one in fields:
        size += one.size
        kind = one.kind
        if not kind:
            regular.append(one)
        elif kind == PSEUDO:
            slot = _SLOTS.get(one.name)
            if slot is None or pseudo[slot] is not None or regular:
                raise ProtocolError("bad pseudo-header")
            pseudo[slot] = one.value
        elif kind == COOKIE:
            crumbs += 1
            regular.append(one)
        else:
            _note_request_field(head, one, kind)
    if size > limits.HEAD_BYTES or len(fields) > limits.HEAD_FIELDS:
        text = f"the request's head is over the limit of {limits.HEAD_BYTES} octets or {limits.HEAD_FIELDS} fields"
        raise ProtocolError(text, Reason.OVER_LIMIT, 431)
    head.version = HTTP_2
    head.has_crumbs = crumbs > 1
    method, scheme, authority, path, protocol = pseudo
    if method == b"CONNECT":
        return _connect_of(head, pseudo)
    if not method or not scheme or not path or protocol is not None:
        raise ProtocolError("pseudo-header missing")
    if path == b"*" and method != b"OPTIONS":
        raise ProtocolError("path * of another method than OPTIONS")
    head.method = method
    head.scheme = scheme
    head.path = path
    if authority:
        if head.authority != authority and head.has_host:
            _settle_authority(head, authority)
        head.authority = authority
    return head


def _note_request_field(head: RequestHead, one: Field, kind: int) -> None:
    if kind == CONTENT_LENGTH:
        if head.body_size != _NO_LENGTH:
            _same_length(one, head.body_size)
            return
        head.body_size = int(one.value)
    elif kind == TE and one.value.lower() == b"trailers":
        head.takes_trailers = True
        return
    elif kind == HOST and not head.has_host:
        head.has_host = True
        head.authority = one.value
    elif kind == L5D:
        head.has_l5d = True
    elif kind == DROPPED:
        return
    elif kind != DATE:
        raise ProtocolError(f"field {one.name[:50]!r}, which HTTP/2 forbids here")
    head.fields.append(one)


def _settle_authority(head: RequestHead, authority: bytes) -> None:
    """`:authority` and `host` must agree (RFC 9113 section 8.3.1).

    A proxy may carry an HTTP/1 request in absolute-form whose Host named another server: there the target counts, and
    Host follows it, so that policy and app always see the same host.
    """
    if head.has_host and head.authority.lower() != authority.lower() and not orig_proto.is_carried(head):
        raise ProtocolError(":authority and host disagree", Reason.BAD_AUTHORITY, 400)
    head.take_authority(authority)


def _connect_of(head: RequestHead, pseudo: list[bytes | None]) -> RequestHead:
    """CONNECT (RFC 9113 section 8.5), or extended CONNECT as the upgrade that it stands for (RFC 8441)."""
    _, scheme, authority, path, protocol = pseudo
    if not authority:
        raise ProtocolError("CONNECT without an authority")
    if head.body_size != _NO_LENGTH:
        # An app behind HTTP/1 would take the first bytes of the tunnel for a body.
        raise ProtocolError("CONNECT with content-length", Reason.BAD_HEAD, 400)
    if protocol is not None and names_http(protocol):
        raise ProtocolError("CONNECT to a tunnel for HTTP", Reason.BAD_HEAD, 501)
    head.wants_tunnel = True
    head.body_size = 0
    if protocol is None:
        if scheme is not None or path is not None:
            raise ProtocolError("CONNECT with :scheme or :path")
        head.method = b"CONNECT"
        head.scheme = b"http"
        head.take_authority(authority)
        head.target = authority
        return head
    if not scheme or not path or path == b"*":
        raise ProtocolError("pseudo-header missing")
    _settle_authority(head, authority)
    head.method = b"GET"
    head.scheme = scheme
    head.path = path
    head.upgrade = protocol
    return head


def response_of(fields: list[Field]) -> ResponseHead:
    """A response head from its decoded fields, or ProtocolError if they do not make one."""
    status = 0
    regular: list[Field] = []
    size = 0
    length = UNKNOWN
    version = HTTP_2
    has_l5d = has_date = False
    for one in fields:
        size += one.size
        kind = one.kind
        if not kind or kind == COOKIE:
            regular.append(one)
        elif kind == PSEUDO:
            if one.name != b":status" or status or regular:
                raise ProtocolError("bad pseudo-header")
            status = int(one.value)
        else:
            if kind == DATE:
                has_date = True
            elif kind == L5D:
                if one.name == orig_proto.NAME:
                    version = orig_proto.version_of(one.value)
                    continue
                has_l5d = True
            elif kind == CONTENT_LENGTH:
                if length != _NO_LENGTH:
                    _same_length(one, length)
                    continue
                length = int(one.value)
            elif kind == DROPPED:
                continue
            elif kind != HOST:
                raise ProtocolError(f"field {one.name[:50]!r}, which HTTP/2 forbids here")
            regular.append(one)
    if size > limits.HEAD_BYTES or len(fields) > limits.HEAD_FIELDS:
        raise ProtocolError(Reason.RESPONSE_HEAD_LIMIT.value, Reason.RESPONSE_HEAD_LIMIT)
    if not status:
        raise ProtocolError("no status")
    head = ResponseHead(status, regular, length)
    head.version = version
    head.has_l5d = has_l5d
    head.has_date = has_date
    return head


def _same_length(one: Field, known: int) -> None:
    """A length that is repeated counts once (RFC 9110 section 8.6); two different lengths are an error."""
    if int(one.value) != known:
        raise ProtocolError("two content-lengths that differ")


def connect_fields(head: RequestHead) -> tuple[Field, ...]:
    """The fields of a request for a tunnel: CONNECT, or extended CONNECT for what came as one."""
    method = field(b":method", b"CONNECT")
    authority = field(b":authority", head.authority)
    if not head.upgrade:
        return (method, authority, *travelling(head.fields))
    return (
        method,
        field(b":protocol", head.upgrade),
        field(b":scheme", head.scheme),
        authority,
        field(b":path", head.path),
        *travelling(head.fields),
    )


_HANDSHAKE: Final = (b"sec-websocket-key", b"sec-websocket-accept")
"""What HTTP/1 needs to be sure of a WebSocket and HTTP/2 does not (RFC 8441 section 5.1)."""


def travelling(fields: list[Field]) -> list[Field]:
    """The fields of an HTTP/1 head for a tunnel that HTTP/2 may carry."""
    return [one for one in fields if one.kind not in (CONNECTION, UPGRADE, HOP, TE) and one.name not in _HANDSHAKE]


_UPGRADING: Final = field(b"connection", b"Upgrade")


def as_http_1(head: RequestHead) -> RequestHead:
    """With the fields that an HTTP/1 endpoint is asked for a tunnel with; an HTTP/2 endpoint does not get them."""
    fields = [*head.fields, _UPGRADING, field(b"upgrade", head.upgrade)]
    if head.upgrade == b"websocket":
        fields.append(Field(b"sec-websocket-key", _websocket_key(), 0, False, b"", b""))
    return head.with_fields(fields)


def _websocket_key() -> bytes:
    """16 octets in base64. Security does not depend on their being random (RFC 6455 section 10.3 is about caches)."""
    return b2a_base64(getrandbits(128).to_bytes(16, "big"), newline=False)
