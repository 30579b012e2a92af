"""DER, as far as Python's ssl does not read it: whether a certificate is an authority's, and the elements of one or of a revocation list;
and how an element is written.

OpenSSL has parsed and verified a certificate before this looks at it; whatever is not well formed raises ValueError.
The cryptography package could read it too, but would cost a sidecar that makes no key of its own 10 MB.
"""

from __future__ import annotations

from typing import Final

INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
UTF8_STRING: Final = 0x0C
SEQUENCE: Final = 0x30
SET: Final = 0x31
_BOOLEAN: Final = 0x01
_EXTENSIONS: Final = 0xA3
_BASIC_CONSTRAINTS: Final = b"\x06\x03\x55\x1d\x13"
"""2.5.29.19 (RFC 5280, section 4.2.1.9)."""


def is_authority(certificate_der: bytes) -> bool:
    """Whether basicConstraints says cA; ValueError if the bytes are no certificate."""
    certificate = content(certificate_der, 0, SEQUENCE)
    for tag, extensions in elements(content(certificate, 0, SEQUENCE)):
        if tag == _EXTENSIONS:
            for _, extension in elements(content(extensions, 0, SEQUENCE)):
                if extension.startswith(_BASIC_CONSTRAINTS):
                    return _says_ca(extension)
    return False


def _says_ca(extension: bytes) -> bool:
    for tag, value in elements(extension):
        if tag == OCTET_STRING:
            fields = elements(content(value, 0, SEQUENCE))
            return bool(fields) and fields[0][0] == _BOOLEAN and fields[0][1] != b"\x00"
    return False


def elements(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each element (X.690, section 8.1)."""
    found = []
    at = 0
    while at < len(data):
        start, end = _bounds(data, at)
        found.append((data[at], data[start:end]))
        at = end
    return found


def content(data: bytes, at: int, tag: int) -> bytes:
    start, end = _bounds(data, at)
    if data[at] != tag:
        raise ValueError(f"DER: tag {data[at]:#x} where {tag:#x} should be")
    return data[start:end]


def element(tag: int, *parts: bytes) -> bytes:
    """The element of this tag whose content is all of these."""
    size = sum(map(len, parts))
    if size < 0x80:
        return bytes((tag, size)) + b"".join(parts)
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + b"".join(parts)


def _bounds(data: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at `at` begins and ends."""
    if at + 2 > len(data):
        raise ValueError("DER: cut off")
    length = data[at + 1]
    start = at + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    if start + length > len(data):
        raise ValueError("DER: cut off")
    return start, start + length
