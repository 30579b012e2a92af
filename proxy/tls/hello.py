"""The ClientHello: whom the client wants to reach (reference: identity-and-tls, section 6).

Law: a pure function of the bytes at hand; says "not TLS" as soon as one byte
contradicts, and answers only when the whole record is there. A hello spread
over several records is not supported, as in Linkerd: what is missing from
the first record makes it no hello.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

VECTOR_BYTES: Final = 8192
"""The longest record, and vector in it, that is taken for TLS (Linkerd's buffer; real hellos are below 2 KB)."""

HELLO_BYTES: Final = VECTOR_BYTES + 5
"""More than this need never be looked at."""

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
    """A vector ends beyond what holds it, or is longer than VECTOR_BYTES."""


def read_hello(data: bytes) -> Hello | NoHello:
    """What the first bytes of a connection are."""
    if not _begins_like_a_hello(data):
        return NOT_TLS
    if len(data) < 5:
        return INCOMPLETE
    record_bytes = data[3] << 8 | data[4]
    if record_bytes > VECTOR_BYTES:
        return NOT_TLS
    if len(data) < 5 + record_bytes:
        return INCOMPLETE
    try:
        return _read_record(data[5 : 5 + record_bytes])
    except _Cut:
        return NOT_TLS


def judge_hello(data: bytes) -> Hello | NoHello | None:
    """read_hello as `transport.peek.peek` wants it: None for INCOMPLETE."""
    found = read_hello(data)
    return None if found is INCOMPLETE else found


def _begins_like_a_hello(data: bytes) -> bool:
    """Content type handshake, version 3.1 or 3.3; then, beyond the length, client_hello of less than 64 KiB."""
    return (
        data[:1] in (b"", b"\x16")
        and data[1:2] in (b"", b"\x03")
        and data[2:3] in (b"", b"\x01", b"\x03")
        and data[5:6] in (b"", b"\x01")
        and data[6:7] in (b"", b"\x00")
    )


def _read_record(record: bytes) -> Hello | NoHello:
    reader = _Reader(record, 2)  # type and the length's top byte are judged already
    hello = _Reader(reader.vector(2), 0)
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
    """RFC 6066, section 3: an address is no host name. A last label of digits only can be nothing else."""
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
        size = self.number(length_bytes)
        if size > VECTOR_BYTES:
            raise _Cut
        return self.take(size)
