"""The ClientHello: the name that a client wants to reach (docs/linkerd/identity-and-tls.md, section 6).

Pure functions of the bytes so far. The answer is "not TLS" as soon as one byte contradicts, and the name when the whole message is there.
A message may be spread over several records (RFC 8446, section 5.1), and clients do that to get past middleboxes: if such a hello for
our own name went to the app as it is, the app would meet TLS where the client expected its proxy.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from proxy.core import limits

_RECORD_BYTES: Final = 16384
"""The longest fragment of a plaintext record (RFC 8446, section 5.1)."""


_SERVER_NAME: Final = 0
_ALPN: Final = 16
_DNS_NAME: Final = re.compile(
    rb"(?=.{1,254}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*\.?"
)


class Hello(NamedTuple):
    sni: str
    """Lower case, never empty; a trailing dot is kept, since it matters when names are compared."""
    alpn: tuple[bytes, ...]


class NoHello(Enum):
    NOT_TLS = "not TLS, or without a usable server name"
    INCOMPLETE = "more bytes are needed"


NOT_TLS: Final = NoHello.NOT_TLS
INCOMPLETE: Final = NoHello.INCOMPLETE


class _Cut(Exception):
    """A vector is longer than what contains it."""


def read_hello(data: bytes) -> Hello | NoHello:
    """What the first bytes of a connection are."""
    message = _message_of(data)
    if isinstance(message, NoHello):
        return message
    try:
        return _read_body(message)
    except _Cut:
        return NOT_TLS


def judge_hello(data: bytes) -> Hello | NoHello | None:
    """`read_hello` in the form that `transport.peek.peek` needs: None for INCOMPLETE."""
    found = read_hello(data)
    return None if found is INCOMPLETE else found


def _message_of(data: bytes) -> bytes | NoHello:
    """The body of the ClientHello, gathered from its records."""
    fragments: list[bytes] = []
    gathered = at = 0
    needed = -1
    for _ in range(limits.HELLO_RECORDS):
        header = data[at : at + 5]
        if not _may_be_a_header(header):
            return NOT_TLS
        if len(header) == 5:
            fragment = data[at + 5 : at + 5 + (header[3] << 8 | header[4])]
            fragments.append(fragment)
            gathered += len(fragment)
            at += 5 + (header[3] << 8 | header[4])
            if needed < 0:
                start = b"".join(fragments)[:4]
                if not _may_be_a_start(start):
                    return NOT_TLS
                if len(start) == 4:
                    needed = 4 + int.from_bytes(start[1:], "big")
            if 0 <= needed <= gathered:
                return b"".join(fragments)[4:needed]
        if at >= len(data) or len(header) < 5:
            return INCOMPLETE if at < limits.HELLO_BYTES and needed <= limits.HELLO_BYTES else NOT_TLS
    return NOT_TLS


def _may_be_a_header(header: bytes) -> bool:
    """Whether these bytes, as far as they go, can be the header of a non-empty handshake record of version 3.1 or 3.3."""
    if (
        header[:1] not in (b"", b"\x16")
        or header[1:2] not in (b"", b"\x03")
        or header[2:3] not in (b"", b"\x01", b"\x03")
    ):
        return False
    return len(header) < 5 or 0 < header[3] << 8 | header[4] <= _RECORD_BYTES


def _may_be_a_start(start: bytes) -> bool:
    """Whether these bytes, as far as they go, can begin a client_hello of less than 64 KiB."""
    return start[:1] in (b"", b"\x01") and start[1:2] in (b"", b"\x00")


def _read_body(message: bytes) -> Hello | NoHello:
    hello = _Reader(message, 0)
    if hello.take(2) != b"\x03\x03":
        return NOT_TLS
    hello.take(32)
    hello.vector(1)
    hello.vector(2)
    hello.vector(1)
    extensions = _Reader(hello.vector(2), 0)
    sni: str | None = None
    alpn: tuple[bytes, ...] = ()
    has_name = False
    while extensions.has_more():
        kind = extensions.number(2)
        body = extensions.vector(2)
        if kind == _SERVER_NAME and not has_name:
            has_name = True
            sni = _read_name(_Reader(body, 0))
        elif kind == _ALPN:
            alpn = _read_protocols(_Reader(body, 0))
    return NOT_TLS if sni is None else Hello(sni, alpn)


def _read_name(reader: _Reader) -> str | None:
    names = _Reader(reader.vector(2), 0)
    if names.number(1) != 0:
        return None
    name = names.vector(2).lower()
    return name.decode() if _DNS_NAME.fullmatch(name) and not _is_ip(name) else None


def _is_ip(name: bytes) -> bool:
    """Whether the name is an IP address, which is not a host name (RFC 6066, section 3): only an address ends in a
    label of digits.
    """
    return name.rstrip(b".").rpartition(b".")[2].isdigit()


def _read_protocols(reader: _Reader) -> tuple[bytes, ...]:
    names = _Reader(reader.vector(2), 0)
    found = []
    while names.has_more():
        found.append(names.vector(1))
    return tuple(found)


class _Reader:
    """A cursor over TLS's length-prefixed vectors (RFC 8446, section 3.4)."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def has_more(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise _Cut
        found = self._data[self._at : end]
        self._at = end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, length_bytes: int) -> bytes:
        return self.take(self.number(length_bytes))
