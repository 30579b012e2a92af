"""RequestHead and ResponseHead: heads as stages read them, independent of the HTTP version.

Framing is a fact for codecs (`body_size`), never a field for stages to
interpret; hop-by-hop fields do not get this far. Once a codec has handed a head
to an exchange, the head and its list of fields must not be edited: the same head
may be dispatched twice, and codecs that remember heads hand out the same one
again. A stage that needs another head makes one with `with_fields` or `copy`.
"""

from __future__ import annotations

from typing import Final

from proxy.http.headers import HOST, PLAIN, Field

UNKNOWN: Final = -1
"""body_size: only the end will tell (chunked, until close, HTTP/2 without content-length)."""
TUNNEL: Final = -2
"""body_size: bytes both ways until either end closes."""


HTTP_1_0: Final = 10
HTTP_1_1: Final = 11
HTTP_2: Final = 20


class Renderings:
    """The forms in which a remembered head is sent on. Its codec hands the head out again when the same octets come, so they
    need not be made again. Each is made on first need; the codec that remembers the head counts their memory."""

    __slots__ = ("http1", "http2", "marked", "carried")

    def __init__(self) -> None:
        self.http1 = b""
        """The octets that the other side gets over HTTP/1."""
        self.http2: tuple[Field, ...] = ()
        """The fields that the other side gets over HTTP/2."""
        self.marked: tuple[Field, ...] = ()
        """The fields of a response to a request that was HTTP/1 (orig_proto.py)."""
        self.carried: RequestHead | None = None
        """The request as HTTP/2 carries it between proxies (orig_proto.py)."""


class RequestHead:
    """One request, as stages see it. `fields` keeps order, case and duplicates of what came.

    Fields of these kinds may be among them: PLAIN, HOST (in its place; at most one), CONTENT_LENGTH, L5D, DATE; CONNECTION,
    UPGRADE only in an HTTP/1 head that asks for a tunnel, which must reach an HTTP/1 endpoint so.
    """

    __slots__ = (
        "method", "scheme", "authority", "path", "fields", "body_size", "target", "upgrade", "takes_trailers", "version",
        "is_absolute", "has_host", "has_l5d", "has_crumbs", "wants_tunnel", "needs_own_connection", "renderings", "text",
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
        self.target = b""
        """An HTTP/1 target that is not `path`, as it came: absolute-form, or authority-form of a CONNECT."""
        self.upgrade = b""
        """The protocols that a client offers to switch to."""
        self.takes_trailers = False
        """Whether the request has `te: trailers`, which gRPC servers insist on. No field stands for it."""
        self.version = HTTP_1_1
        """The version that the client spoke, or that `l5d-orig-proto` names. An HTTP/1 endpoint gets it."""
        self.is_absolute = False
        """The HTTP/1 target came in absolute-form and travels on in it."""
        self.has_host = False
        """A HOST field is among the fields; else HTTP/1.1 makes one from `authority`."""
        self.has_l5d = False
        """Whether fields with the mesh's own names are among the fields, which stages must look at."""
        self.has_crumbs = False
        """Whether HTTP/2 brought its cookie in pieces, which HTTP/1 needs as one field."""
        self.wants_tunnel = False
        """Whether it is CONNECT or an upgrade, so that the answer may turn both sides into a byte tunnel."""
        self.needs_own_connection = False
        """Whether it is HTTP/1.0 or has no name in Host. It goes over an HTTP/1 connection of its own
        (docs/linkerd/outbound.md, section 9.3).
        """
        self.renderings: Renderings | None = None
        """Set if its codec remembers the head; None if the head will not come again."""
        self.text = b""
        """The octets that it came in over HTTP/1, without the empty line, if an HTTP/1 endpoint gets the very same; else
        empty, as in every head that is made from another."""

    def take_authority(self, authority: bytes) -> None:
        """The target names this authority, and Host is made to say the same, whatever it said (RFC 9112 section 3.2.2).

        Code that judges the request by its target and an app that reads Host must see the same server.
        """
        if self.has_host and self.authority.lower() != authority.lower():
            host = Field(b"host", authority, HOST, False, b"Host: %b\r\n" % authority, b"")
            self.fields = [host if one.kind == HOST else one for one in self.fields]
        self.authority = authority

    def renamed(self, authority: bytes) -> RequestHead:
        """The same request to another authority: Host and a target in absolute-form follow."""
        head = self.copy()
        head.authority = authority
        head.target = b""
        if head.has_host:
            head.has_host = False
            head.fields = [one for one in head.fields if one.kind != HOST]
        return head

    def in_origin_form(self) -> RequestHead:
        """The same request as a server expects it from a client: the authority is in Host alone (RFC 9112 section 3.2.1)."""
        head = self.copy()
        head.is_absolute = False
        head.target = b""
        return head

    def absolute_form(self) -> bytes:
        """The target of a request to a forward proxy; the path `*` is written as none (RFC 9112 section 3.2.4)."""
        return b"%b://%b%b" % (self.scheme, self.authority, b"" if self.path == b"*" else self.path)

    def with_one_cookie(self) -> RequestHead:
        """The same request with one cookie field, in the place of the first crumb (RFC 9113 section 8.2.3)."""
        crumbs = [one.value for one in self.fields if one.name == b"cookie"]
        joined = Field(b"cookie", b"; ".join(crumbs), PLAIN, False, b"", b"")
        fields: list[Field] = []
        has_cookie = False
        for one in self.fields:
            if one.name != b"cookie":
                fields.append(one)
            elif not has_cookie:
                has_cookie = True
                fields.append(joined)
        head = self.with_fields(fields)
        head.has_crumbs = False
        return head

    def copy(self) -> RequestHead:
        return self.with_fields(self.fields.copy())

    def with_fields(self, fields: list[Field]) -> RequestHead:
        """The same request with other fields; the new head owns the list. A caller that adds or removes Host or fields of the mesh sets `has_host` and `has_l5d`."""
        head = RequestHead(self.method, self.scheme, self.authority, self.path, fields, self.body_size)
        head.target = self.target
        head.upgrade = self.upgrade
        head.takes_trailers = self.takes_trailers
        head.version = self.version
        head.is_absolute = self.is_absolute
        head.has_host = self.has_host
        head.has_l5d = self.has_l5d
        head.has_crumbs = self.has_crumbs
        head.wants_tunnel = self.wants_tunnel
        head.needs_own_connection = self.needs_own_connection
        return head

    def __repr__(self) -> str:
        return f"{_text(self.method)} {_text(self.authority)}{_text(self.path)}"


class ResponseHead:
    """One response. `fields` is as in RequestHead, but CONNECTION and UPGRADE occur only beside status 101."""

    __slots__ = ("status", "fields", "body_size", "phrase", "upgrade", "version", "has_date", "has_l5d", "renderings")

    def __init__(self, status: int, fields: list[Field], body_size: int) -> None:
        self.status = status
        self.fields = fields
        self.body_size = body_size
        self.phrase = b""
        """The reason phrase, where it is not the usual one."""
        self.upgrade = b""
        """The protocol that a 101 switches to."""
        self.version = HTTP_1_1
        """The version that the endpoint spoke, or that `l5d-orig-proto` names."""
        self.has_date = False
        """A `date` is known to be among the fields; False asks for a look (`dates.needs_date`)."""
        self.has_l5d = False
        self.renderings: Renderings | None = None
        """Set if its codec remembers the head."""

    def copy(self) -> ResponseHead:
        return self.with_fields(self.fields.copy())

    def with_fields(self, fields: list[Field]) -> ResponseHead:
        """The same response with other fields; the new head owns the list."""
        head = ResponseHead(self.status, fields, self.body_size)
        head.phrase = self.phrase
        head.upgrade = self.upgrade
        head.version = self.version
        head.has_date = self.has_date
        head.has_l5d = self.has_l5d
        return head

    def __repr__(self) -> str:
        return str(self.status)


def _text(data: bytes) -> str:
    return data[:100].decode("latin-1")
