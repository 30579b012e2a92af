"""HeaderBlock: the header lines of one HTTP/1 message, judged together.

A block of lines met before is one lookup; otherwise each line is one lookup,
and a line that was not met before is judged by one strict expression (RFC
9112: no obs-fold, no bare CR, no contradictory length). What the lines say
about framing is only noted here. Whether it is acceptable depends on the kind
of message: `head.py` is strict with requests and tolerant with responses.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core import limits
from proxy.core.budget import Table
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.fields.upgrades import names_http, protocols
from proxy.http.head import UNKNOWN
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
    field_of_new_line,
    known_line,
)

_CONNECTION: Final = field_of_line(b"Connection: Upgrade")
_keep_alive: Final = re.compile(rb"(?:^|[,; \t])timeout[ \t]*=[ \t]*([0-9]{1,6})(?![0-9])", re.IGNORECASE).search
_is_coding: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+(?:[ \t]*;[\t\x20-\x7e]*)?").fullmatch


class HeaderBlock:
    """What the header lines of one head mean: the fields that travel on, and facts for the codec.

    Remembered by its text, like an HPACK block, so it is never changed.
    """

    __slots__ = (
        "fields", "hop_fields", "authority", "length", "transfer", "closes", "upgrade", "names_http",
        "takes_trailers", "has_date", "has_l5d", "is_familiar", "has_come_before", "keep_alive_s", "is_unchanged",
    )  # fmt: skip

    def __init__(self, lines: list[bytes]) -> None:
        self.fields: list[Field] = []
        self.hop_fields: list[Field] = self.fields
        """The same and, in their places, Connection and Upgrade: what an upgrade takes along."""
        self.authority: bytes | None = None
        """The value of Host; None if there is none."""
        self.length = UNKNOWN
        self.transfer: TransferCodings | None = None
        """None if the message says no Transfer-Encoding."""
        self.closes = False
        self.upgrade = b""
        """The protocols that Upgrade names, without HTTP itself."""
        self.names_http = False
        """Whether Upgrade named HTTP/2 or another version of HTTP."""
        self.takes_trailers = False
        self.has_date = False
        self.has_l5d = False
        self.keep_alive_s = 0.0
        """The value of `Keep-Alive: timeout=` in seconds; 0 if there is none."""
        self.has_come_before = False
        if len(lines) > limits.HEAD_FIELDS:
            raise ProtocolError(f"the head is over the limit of {limits.HEAD_FIELDS} fields", Reason.OVER_LIMIT, 431)
        fields = self.fields
        has_hops = False
        is_familiar = True
        for line in lines:
            field = known_line(line)
            if field is None:
                field = field_of_new_line(line)
                is_familiar = False
            kind = field.kind
            if not kind or self._note(field, kind):
                fields.append(field)
            elif kind == CONNECTION or kind == HOP or kind == TRANSFER_ENCODING:
                has_hops = True
                fields.append(field)
            elif kind == UPGRADE:
                has_hops = True
                self._note_upgrade(field)
        if has_hops:
            self._take_hops_out()
        self.is_familiar = is_familiar
        """Whether every line was known, so that the block is worth remembering as a whole."""
        self.is_unchanged = len(self.fields) == len(lines)
        """Each line is passed on as it came."""

    def _note(self, field: Field, kind: int) -> bool:
        """Note what a field means that is more than text. Returns True if the field is passed on."""
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
        if kind == TE:
            options = [option.strip(b" \t") for option in value.lower().split(b",")]
            self.takes_trailers = self.takes_trailers or b"trailers" in options
        elif kind == MALFORMED:
            raise ProtocolError("bad header line")
        return False

    def _note_upgrade(self, field: Field) -> None:
        """HTTP itself is never upgraded to: the requests inside such a tunnel would pass no policy (RFC 9113 section 3.1)."""
        offered = protocols(field.value)
        kept = [one for one in offered if not names_http(one)]
        if len(kept) != len(offered):
            self.names_http = True
            field = Field(b"upgrade", b", ".join(kept), UPGRADE, False, b"", b"")
        if kept:
            self.upgrade = self.upgrade + b", " + field.value if self.upgrade else field.value
            self.fields.append(field)

    def _take_hops_out(self) -> None:
        """Remove the fields that Connection names, except those that a client must not take away from us: Host,
        framing, and the mesh's own.

        An Upgrade that Connection does not name counts as absent (RFC 9110 section 7.8). As in Linkerd, it counts
        all the same if the client sent no Connection at all (docs/linkerd/outbound.md, section 5.2).
        """
        codings = [one.value for one in self.hop_fields if one.kind == TRANSFER_ENCODING]
        if codings:
            self.transfer = TransferCodings(b",".join(codings))  # judged together, once
        said = [one.value.lower() for one in self.hop_fields if one.kind == CONNECTION]
        options = [option.strip(b" \t") for value in said for option in value.split(b",")]
        self.closes = b"close" in options
        for one in self.hop_fields:
            if one.name == b"keep-alive":
                timeout = _keep_alive(one.value)
                self.keep_alive_s = float(timeout[1]) if timeout is not None else 0.0
        if options and b"upgrade" not in options:
            self.upgrade = b""
        named = set(options)  # there may be thousands of them, for hundreds of fields
        self.hop_fields = [
            one
            for one in self.hop_fields
            if one.kind != HOP
            and one.kind != TRANSFER_ENCODING
            and not ((one.kind == PLAIN or one.kind == DATE) and one.name in named)
        ]
        self.fields = [one for one in self.hop_fields if one.kind != CONNECTION and one.kind != UPGRADE]
        if options and options != [b"upgrade"]:
            self.hop_fields = [one for one in self.hop_fields if one.kind != CONNECTION]
            self.hop_fields.append(_CONNECTION)
        if self.has_date:
            self.has_date = any(one.kind == DATE for one in self.fields)


class TransferCodings:
    """The meaning of all Transfer-Encoding fields together (RFC 9112 section 6.1)."""

    __slots__ = ("text", "is_chunked", "is_only_chunked", "others", "error")

    def __init__(self, text: bytes) -> None:
        self.text: Final = text.lower()
        named = [one for part in self.text.split(b",") if (one := part.strip(b" \t"))]
        self.is_only_chunked: Final = self.text == b"chunked"
        """The one form that a request may have."""
        codings = [one for one in named if one != b"identity"]
        """`identity` is not a coding: HTTP/1.1 had it until RFC 7230, and some servers still send it."""
        self.error: Final = _error_of(codings)
        """Why the end of such a message cannot be determined; empty if it can."""
        self.is_chunked: Final = not self.error and codings[-1:] == [b"chunked"]
        self.others: Final = codings[:-1] if self.is_chunked else codings
        """The codings that remain when chunked is taken off, in the order in which they were applied."""

    @property
    def decides(self) -> bool:
        """The message's length is not what Content-Length says (RFC 9112 section 6.3)."""
        return self.is_chunked or bool(self.others)


def _error_of(codings: list[bytes]) -> str:
    if len(codings) > limits.TRANSFER_CODINGS:
        return "too many transfer codings"
    if codings.count(b"chunked") > 1:
        return "chunked twice"
    for one in codings:
        if _is_coding(one) is None or (b"chunked" in one and one != b"chunked"):
            return "transfer-encoding not understood"
    return ""


_blocks: Final[Table[bytes, HeaderBlock]] = Table("http1_blocks", limits.HEADS_BYTES, 700, 2)
_known_block: Final = _blocks.recent.get
_older_block: Final = _blocks.older.get


def header_block(text: bytes) -> HeaderBlock:
    """The judged form of the header lines between the start line and the empty line."""
    block = _known_block(text)
    if block is None:
        block = _older_block(text)
        if block is None:
            block = HeaderBlock(text.split(b"\r\n") if text else [])
            if not block.is_familiar:
                return block
        _blocks.keep(text, block, len(text))
    return block
