"""RequestHead and ResponseHead: what stages read and edit, in no version's terms.

Law: framing is a fact for codecs (`body_size`), never a field for stages to
interpret; hop-by-hop fields do not get this far. A head belongs to one
exchange: codecs that remember heads hand out copies.
"""

from __future__ import annotations

from typing import Final

from proxy.http.headers import Field

UNKNOWN: Final = -1
"""body_size: only the end will tell (chunked, until close, HTTP/2 without content-length)."""
TUNNEL: Final = -2
"""body_size: bytes both ways until either end closes."""


HTTP_1_0: Final = 10
HTTP_1_1: Final = 11
HTTP_2: Final = 20


class RequestHead:
    __slots__ = (
        "method", "scheme", "authority", "path", "fields", "body_size", "upgrade", "takes_trailers", "version", "is_absolute",
    )  # fmt: skip

    def __init__(
        self, method: bytes, scheme: bytes, authority: bytes, path: bytes, fields: list[Field], body_size: int
    ) -> None:
        self.method = method
        self.scheme = scheme
        self.authority = authority
        self.path = path
        self.fields = fields
        self.body_size = body_size
        self.upgrade = b""
        """The protocols that an HTTP/1 client offers to switch to."""
        self.takes_trailers = False
        """`te: trailers` was said; gRPC servers insist on it."""
        self.version = HTTP_1_1
        """As the client spoke it, or as `l5d-orig-proto` says: what an HTTP/1 endpoint is to see."""
        self.is_absolute = False
        """The HTTP/1 target came in absolute-form and travels on in it."""

    def copy(self) -> RequestHead:
        head = RequestHead(self.method, self.scheme, self.authority, self.path, self.fields.copy(), self.body_size)
        head.takes_trailers = self.takes_trailers
        head.version = self.version
        head.is_absolute = self.is_absolute
        return head


class ResponseHead:
    __slots__ = ("status", "fields", "body_size", "upgrade", "version")

    def __init__(self, status: int, fields: list[Field], body_size: int) -> None:
        self.status = status
        self.fields = fields
        self.body_size = body_size
        self.upgrade = b""
        """The protocol that a 101 switches to."""
        self.version = HTTP_1_1
        """As the endpoint spoke it, or as `l5d-orig-proto` says."""

    def copy(self) -> ResponseHead:
        head = ResponseHead(self.status, self.fields.copy(), self.body_size)
        head.version = self.version
        return head
