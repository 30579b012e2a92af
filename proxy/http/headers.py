"""Field: one header field as an interned object, found by the bytes in which it came.

A field is judged once, when it is interned, and never changes. Codecs look it
up by its HTTP/1 line or by its HPACK literal; the form that the other codec
needs is made on first need and kept. A field that breaks the rules is interned
too, as MALFORMED, so that an HPACK table stays in step with the peer's; building
a head from it fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from proxy.core import limits
from proxy.core.budget import Seen, Table
from proxy.http.h2.hpack import huffman

PLAIN: Final = 0
"""Passed on; every other kind needs a look, so that `if field.kind` is the one test per field."""
PSEUDO: Final = 1
HOST: Final = 2
CONTENT_LENGTH: Final = 3
TRANSFER_ENCODING: Final = 4
CONNECTION: Final = 5
UPGRADE: Final = 6
TE: Final = 7
HOP: Final = 8
"""Hop-by-hop fields without a meaning for us, which are dropped."""
L5D: Final = 9
"""The mesh's own names, `l5d-…`: they are passed on, and heads say `has_l5d`; stages decide which of them to believe."""
MALFORMED: Final = 10
DATE: Final = 11
"""Passed on; a response that has none gets one."""
COOKIE: Final = 12
"""Passed on; a piece of a cookie, if HTTP/2 brought it (RFC 9113 section 8.2.3). In a field made from an HTTP/1 line
it is PLAIN.
"""
DROPPED: Final = 13
"""Allowed in either version and never passed on: fields that could be taken for one of the mesh, or that offer HTTP/2."""

_KINDS: Final[dict[bytes, int]] = {
    b"host": HOST,
    b"content-length": CONTENT_LENGTH,
    b"transfer-encoding": TRANSFER_ENCODING,
    b"connection": CONNECTION,
    b"upgrade": UPGRADE,
    b"te": TE,
    b"keep-alive": HOP,
    b"proxy-connection": HOP,
    b"date": DATE,
    b"cookie": COOKIE,
    b"http2-settings": DROPPED,
}

HEAD_ONLY: Final = frozenset(
    (
        b"authorization", b"cache-control", b"content-encoding", b"content-range", b"content-type", b"cookie", b"expect",
        b"max-forwards", b"proxy-authenticate", b"proxy-authorization", b"set-cookie", b"trailer", b"www-authenticate",
    )
)  # fmt: skip
"""Besides framing, hop and routing fields: what must not change behind a body, so it is dropped from trailers (RFC 9110 section 6.5.1)."""

is_authority: Final = re.compile(
    rb"(?:(?:\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(?:%[0-9A-Za-z._~\-]+)?\]|[!$&'()*+\-.;=_~0-9A-Za-z]+)(?::[0-9]{0,5})?)?"
).fullmatch
"""Host and port, or nothing (RFC 9110 section 7.2).

Without user information, without the comma that would make two of one, and without percent-encoding, which some
recipients decode and others compare as it is.
"""
_is_token = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_PSEUDO: Final[dict[bytes, Callable[[bytes], re.Match[bytes] | None]]] = {
    b":method": _is_token,
    b":scheme": re.compile(rb"[A-Za-z][A-Za-z0-9+\-.]*").fullmatch,
    b":authority": is_authority,
    b":path": re.compile(rb"/[\x21-\x7e\x80-\xff]*|\*").fullmatch,
    b":protocol": _is_token,
    b":status": re.compile(rb"[1-9][0-9][0-9]").fullmatch,
}
_is_length = re.compile(rb"[0-9]{1,18}").fullmatch
_is_line = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*").fullmatch
_is_mesh_name = re.compile(rb"l5d-[0-9a-z\-]*").fullmatch
_looks_like_mesh_name = re.compile(rb"l5d[^0-9a-z].*").fullmatch
"""CGI and its successors (WSGI, Rack, PHP) turn every octet that is neither letter nor digit into `_`, so
`l5d_client.id` would be `L5D_CLIENT_ID` there, like the field that we set.
"""
_is_name = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_is_value = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?").fullmatch


class Field:
    """Compared and hashed by identity: interning makes that the same as by value, at a tenth of the price.

    A field whose text is longer than `limits.REMEMBERED_TEXT_BYTES` is not interned: it is made anew each time.
    """

    __slots__ = ("name", "value", "kind", "is_sensitive", "size", "line", "literal")

    def __init__(self, name: bytes, value: bytes, kind: int, is_sensitive: bool, line: bytes, literal: bytes) -> None:
        self.name = name
        """Lower case."""
        self.value = value
        self.kind = kind
        self.is_sensitive = is_sensitive
        """Whether it must never be put into an HPACK table (RFC 7541 section 7.1.3)."""
        self.size = len(name) + len(value) + 32
        self.line = line or name + b": " + value + b"\r\n"
        """As an HTTP/1 line, in the original spelling if it came as one."""
        self.literal = literal
        """The value as an HPACK string literal, or empty until asked for."""

    def make_literal(self) -> bytes:
        self.literal = string_literal(self.value)
        return self.literal

    def __repr__(self) -> str:
        return f"Field({self.name!r}, {self.value!r})"


def string_literal(text: bytes) -> bytes:
    """An HPACK string without Huffman (RFC 7541 section 5.2)."""
    return integer(len(text), 7, 0) + text


def integer(value: int, bits: int, pattern: int) -> bytes:
    """An HPACK integer behind the pattern of its first octet (RFC 7541 section 5.1)."""
    top = (1 << bits) - 1
    if value < top:
        return bytes((pattern | value,))
    octets = [pattern | top]
    value -= top
    while value >= 128:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)


_name_kinds: Final[Table[bytes, int]] = Table("names", limits.NAMES_BYTES, 200, 1)
"""The kind that a name alone decides, for names that came lately."""
_known_kind: Final = _name_kinds.recent.get


def _judge_name(name: bytes) -> int:
    found = _name_kinds.find(name, len(name))
    if found is not None:
        return found
    kind = _KINDS.get(name, PLAIN)
    if _is_name(name) is None:
        kind = MALFORMED
    elif name[0] == 0x3A:
        kind = PSEUDO if name in _PSEUDO else MALFORMED
    elif name.startswith(b"l5d"):
        if name.startswith(b"l5d-") and _is_mesh_name(name) is not None:
            kind = L5D
        elif _looks_like_mesh_name(name) is not None:
            kind = DROPPED
    _name_kinds.keep(name, kind, len(name))
    return kind


def kind_of(name: bytes, value: bytes) -> int:
    """What the codecs have to do about this field; all that its text alone decides is decided here, once."""
    kind = _known_kind(name)
    if kind is None:
        kind = _judge_name(name)
    if not kind:
        return PLAIN
    if kind == PSEUDO:
        return MALFORMED if _PSEUDO[name](value) is None else PSEUDO
    if (kind == HOST and is_authority(value) is None) or (kind == CONTENT_LENGTH and _is_length(value) is None):
        return MALFORMED
    if kind == CONNECTION and value.lower() == b"keep-alive":
        return HOP  # what HTTP/1.1 does anyway, and HTTP/1.0 clients get their connection closed (RFC 9112 section 9.3)
    return kind


_lines: Final[Table[bytes, Field]] = Table("http1_lines", limits.LINES_BYTES, 450, 4)
_literals: Final[Table[tuple[bytes, bytes], Field]] = Table("hpack_literals", limits.LITERALS_BYTES, 550, 4)

known_line: Final = _lines.recent.get
"""The field of a line that came lately; else None, and `field_of_line` makes it."""


known_literal: Final = _literals.recent.get
"""The field of a (name, literal) that came lately; else None, and `field_of_literal` makes it."""


_older_line: Final = _lines.older.get
_keep_line: Final = _lines.keep
_came_before: Final = Seen().again
_older_literal: Final = _literals.older.get


def field_of_line(line: bytes) -> Field:
    """The field of one HTTP/1 header line, without its CRLF."""
    return known_line(line) or field_of_new_line(line)


def field_of_new_line(line: bytes) -> Field:
    """The same, for callers that have tried `known_line` already."""
    field = _older_line(line)
    if field is None:
        field = _judge_line(line)
        if not _came_before(line):
            return field
    _keep_line(line, field, len(line))
    return field


def _judge_line(line: bytes) -> Field:
    name, _, value = line.partition(b":")
    name = name.lower()
    value = value.strip(b" \t")
    if _is_line(line) is None:
        return Field(name, value, MALFORMED, False, b"", b"")
    kind = _known_kind(name)
    if kind is None or kind:
        kind = kind_of(name, value)
        if kind == COOKIE:
            kind = PLAIN
    return Field(name, value, kind, False, line + b"\r\n", b"")


def field_of_literal(name: bytes, literal: bytes) -> Field:
    """The field of an HPACK name and the octets of its value's literal."""
    key = (name, literal)
    field = known_literal(key)
    if field is None:
        field = _older_literal(key)
        if field is None:
            field = judge_literal(name, literal, False)
        _literals.keep(key, field, len(name) + len(literal))
    return field


def judge_literal(name: bytes, literal: bytes, is_sensitive: bool) -> Field:
    """Decode and validate one literal.

    The value is always decoded, although the octets are what travels on: a
    bad Huffman string passed through would make the next peer close a
    connection that other clients share.
    """
    value = huffman.literal_value(literal)
    kind = kind_of(name, value)
    if _is_value(value) is None:
        kind = MALFORMED
    return Field(name, value, kind, is_sensitive, b"", literal)


def field(name: bytes, value: bytes) -> Field:
    """The field of a name and a value made here."""
    return field_of_literal(name, string_literal(value))
