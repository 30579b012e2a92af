"""Certificates that are no longer valid, as a revocation list (RFC 5280, section 5) names them.

A certificate is known by its issuer's name and its serial number, both as they are encoded. The list comes from a file
that whoever runs the sidecar has put there, as the trust anchors do: its signature is not verified, and one that is past
its time goes on counting, because what was revoked stays so.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NoBase64
from typing import Final

from proxy.core import limits
from proxy.core.small_file import read_small
from proxy.core.watch import Watch
from proxy.tls.certificate.der import INTEGER, SEQUENCE, content, elements
from proxy.tls.certificate.pem import blocks

CertificateKey = tuple[bytes, bytes]
"""The issuer's name and the serial number, as DER."""

Revoked = frozenset[CertificateKey]

NONE_REVOKED: Final[Revoked] = frozenset()

NOTHING_REVOKED: Final[Watch[Revoked]] = Watch(NONE_REVOKED)
"""The Watch of connections without a list; it never changes."""

_LIST: Final = "X509 CRL"
_VERSION: Final = 0xA0
_LIST_EXTENSIONS: Final = 0xA0
_BOOLEAN: Final = 0x01
_TIMES: Final = (0x17, 0x18)
"""UTCTime and GeneralizedTime."""


class RevokedError(ValueError):
    """The peer's certificate is on the list; the text names it."""


def check_revoked(certificate_der: bytes, name: str, revoked: Revoked) -> None:
    """RevokedError if this certificate, which was verified and is of the workload `name`, is one of the revoked."""
    key = key_of(certificate_der)
    if key in revoked:
        raise RevokedError(
            f"the certificate of {name or 'a peer without a name'} has been revoked (serial {key[1].hex()})"
        )


def key_of(certificate_der: bytes) -> CertificateKey:
    fields = elements(content(content(certificate_der, 0, SEQUENCE), 0, SEQUENCE))
    if fields[0][0] == _VERSION:
        del fields[0]
    return fields[2][1], fields[0][1]


def read_file(path: str) -> str:
    """The text of a file of lists; OSError if it cannot be read or is too long, ValueError if it is not ASCII."""
    return read_small(path, limits.CERTIFICATES_BYTES).decode("ascii")


def read_revocation_lists(pem: str) -> Revoked:
    """The certificates that the lists in a text name; ValueError if there is no list, or if one is not plain and
    complete.
    """
    found: set[CertificateKey] = set()
    lists = blocks(pem, _LIST)
    if not lists:
        raise ValueError("no revocation list in PEM")
    for block in lists:
        try:
            text = block.removeprefix(f"-----BEGIN {_LIST}-----").removesuffix(f"-----END {_LIST}-----")
            found.update(_read_list(b64decode("".join(text.split()), validate=True)))
        except (NoBase64, IndexError) as error:
            raise ValueError(f"it cannot be read: {error}") from None
    return frozenset(found)


def _read_list(der: bytes) -> list[CertificateKey]:
    fields = elements(content(content(der, 0, SEQUENCE), 0, SEQUENCE))
    if fields[0][0] == INTEGER:
        del fields[0]  # the version
    issuer = fields[1][1]
    rest = [field for field in fields[2:] if field[0] not in _TIMES]
    found = []
    for tag, data in rest:
        if tag == _LIST_EXTENSIONS:
            _check_plain(content(data, 0, SEQUENCE))
        elif tag == SEQUENCE:
            for _, entry in elements(data):
                parts = elements(entry)
                for part in parts[2:]:
                    _check_plain(part[1])
                found.append((issuer, parts[0][1]))
    return found


def _check_plain(extensions: bytes) -> None:
    """ValueError for a list of another kind: one with changes only, or with other issuers' certificates."""
    for _, extension in elements(extensions):
        tag, is_critical = elements(extension)[1]
        if tag == _BOOLEAN and is_critical != b"\x00":
            raise ValueError("it has a critical extension: only plain and whole lists are read")
