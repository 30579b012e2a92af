"""HTTP/1 carried over HTTP/2 between proxies, and back (`l5d-orig-proto`; docs/linkerd/inbound.md, section 9; docs/linkerd/outbound.md, section 9.3).

Pure functions on heads. The client's proxy marks a request (`upgrade`) and
leaves its version as the client spoke it; the app's proxy makes it an HTTP/1
request again (`without_marks`), if the client's proxy proved to be one of the
mesh. Of responses the codecs take care: an HTTP/2 server stream whose request
is HTTP/1 marks its response, and an HTTP/2 client never lets the mark through
(`version_of`).
"""

from __future__ import annotations

from typing import Final

from proxy.core.failure.reason import Reason
from proxy.http.h2.frames.codes import text_of
from proxy.http.head import HTTP_1_0, HTTP_1_1, HTTP_2, Renderings, RequestHead
from proxy.http.headers import L5D, Field, field

NAME: Final = b"l5d-orig-proto"
CLIENT_ID: Final = b"l5d-client-id"

_FORMS: Final[dict[bytes, tuple[int, bool]]] = {
    b"HTTP/1.1": (HTTP_1_1, False),
    b"HTTP/1.1; absolute-form": (HTTP_1_1, True),
    b"HTTP/1.0": (HTTP_1_0, False),
    b"HTTP/1.0; absolute-form": (HTTP_1_0, True),
}
"""Everything that a mark may state about a request: its version, and whether its target was in absolute-form."""
_MARKS: Final[dict[tuple[int, bool], Field]] = {form: field(NAME, text) for text, form in _FORMS.items()}
RESPONSE_MARKS: Final[dict[int, Field]] = {HTTP_1_1: _MARKS[HTTP_1_1, False], HTTP_1_0: _MARKS[HTTP_1_0, False]}
"""By the version of a response: the field that says it was HTTP/1."""


def is_carriable(request: RequestHead) -> bool:
    """Whether it is HTTP/1 and not a request for a tunnel, which needs an HTTP/1 connection of its own."""
    return request.version != HTTP_2 and not request.wants_tunnel


def is_carried(request: RequestHead) -> bool:
    """A mark in one of its forms is among the fields."""
    return request.has_l5d and any(one.name == NAME and one.value in _FORMS for one in request.fields)


def upgrade(request: RequestHead) -> RequestHead:
    """An HTTP/1 request, marked for its way over HTTP/2. A mark that the client brought itself is replaced."""
    renderings = request.renderings
    if renderings is not None and renderings.carried is not None:
        return renderings.carried
    mark = _MARKS[request.version, request.is_absolute]
    if request.has_l5d:
        fields = [one for one in request.fields if one.name != NAME]
        fields.append(mark)
    else:
        fields = [*request.fields, mark]
    head = request.with_fields(fields)
    head.has_l5d = True
    if renderings is not None:
        head.renderings = Renderings()
        renderings.carried = head
    return head


def without_marks(request: RequestHead, is_meshed: bool) -> RequestHead:
    """The request without the mesh's fields that it may not carry, and in the version that a proxy of the mesh named.

    This is the only place that judges these fields on their way to an app. From a client without a proven identity none
    passes. `l5d-client-id` is dropped in any case, because we set it ourselves. `l5d-orig-proto` counts over HTTP/2 only,
    in one of its forms, and if it comes once.
    """
    mark: bytes | None = None
    count = 0
    kept: list[Field] = []
    has_l5d = False
    for one in request.fields:
        if one.kind != L5D:
            kept.append(one)
        elif one.name == NAME:
            mark = one.value
            count += 1
        elif is_meshed and one.name != CLIENT_ID:
            has_l5d = True
            kept.append(one)
    head = request.with_fields(kept)
    head.has_l5d = has_l5d
    if mark is not None and count == 1 and is_meshed and request.version == HTTP_2 and not request.wants_tunnel:
        _believe(head, mark)
    return head


def _believe(request: RequestHead, mark: bytes) -> None:
    """Edit `request`, which nothing else refers to yet, by its mark. An unknown mark leaves it HTTP/2."""
    form = _FORMS.get(mark)
    if form is None:
        return
    version, is_absolute = form
    request.version = version
    if request.has_host:
        # From a proxy that carries HTTP/1: two cookie fields are two lines that its client wrote (tests/data/http1-pair.json,
        # `get`). Without Host it is HTTP/2's own, whose crumbs are joined.
        request.has_crumbs = False
    if version == HTTP_1_0 and not request.has_host and not is_absolute:
        request.authority = b""  # its app gets no Host, and policy knows no more than the app
    if is_absolute and request.authority:
        request.is_absolute = True
        request.target = request.absolute_form()
    request.needs_own_connection = version == HTTP_1_0 or not request.authority


def version_of(mark: bytes) -> int:
    """The version in the mark of a response; HTTP_2 if the mark is not known."""
    if mark == b"HTTP/1.1":
        return HTTP_1_1
    return HTTP_1_0 if mark == b"HTTP/1.0" else HTTP_2


def downgraded_error(reason: Reason, code: int) -> str | None:
    """The error text of a carried request whose HTTP/2 stream failed; None if the failure was not HTTP/2's."""
    if reason is Reason.PEER_RESET or reason is Reason.PEER_REFUSED:
        return f"upgraded connection failed with HTTP/2 reset: {text_of(code)}"
    return None
