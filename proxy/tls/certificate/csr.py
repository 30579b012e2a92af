"""The workload's key and its certificate signing request (docs/linkerd/identity-and-tls.md, section 1).

ECDSA P-256, kept for the life of the process and never rotated. Existing files are used if no other user can have put them
there (private_file.py); if none can be written, key and request live in memory.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, NamedTuple

from proxy.tls.certificate import private_file
from proxy.tls.certificate.der import BIT_STRING, INTEGER, OCTET_STRING, SEQUENCE, SET, UTF8_STRING, element

_log: Final = logging.getLogger(__name__)

KEY_FILE: Final = "key.p8"
CSR_FILE: Final = "csr.der"

_COMMON_NAME: Final = b"\x06\x03\x55\x04\x03"
"""2.5.4.3."""
_SUBJECT_ALTERNATIVE_NAME: Final = b"\x06\x03\x55\x1d\x11"
"""2.5.29.17."""
_EXTENSION_REQUEST: Final = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x0e"
"""1.2.840.113549.1.9.14 (RFC 2985, section 5.4.2)."""
_ECDSA_WITH_SHA256: Final = b"\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"
"""1.2.840.10045.4.3.2 (RFC 5758, section 3.2)."""
_DNS_NAME: Final = 0x82
_ATTRIBUTES: Final = 0xA0


class KeyAndCsr(NamedTuple):
    key_der: bytes
    """PKCS#8."""
    csr_der: bytes
    """PKCS#10: subject CN, exactly one SAN, a DNS name."""


def make_key_and_csr(name: str) -> KeyAndCsr:
    """ValueError if the name is not ASCII, as every DNS name is."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = ec.generate_private_key(ec.SECP256R1())
    unsigned = _unsigned(name, key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    signature = key.sign(unsigned, ec.ECDSA(hashes.SHA256()))
    csr = element(SEQUENCE, unsigned, element(SEQUENCE, _ECDSA_WITH_SHA256), element(BIT_STRING, b"\0", signature))
    return KeyAndCsr(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), csr)


def _unsigned(name: str, public_key: bytes) -> bytes:
    """What is signed of the request (RFC 2986, section 4.1), with `public_key` as X.509 has it.

    By hand, because cryptography.x509 takes longer to import than everything else here together, and a pod waits for it.
    """
    text = name.encode("ascii")
    # RFC 5280 limits a CN to 64 characters, and a DNS name may have 253. Verifiers look at the SAN.
    common_name = element(SEQUENCE, _COMMON_NAME, element(UTF8_STRING, text)) if len(text) <= 64 else b""
    subject = element(SEQUENCE, element(SET, common_name) if common_name else b"")
    names = element(OCTET_STRING, element(SEQUENCE, element(_DNS_NAME, text)))
    extensions = element(SEQUENCE, element(SEQUENCE, _SUBJECT_ALTERNATIVE_NAME, names))
    attribute = element(SEQUENCE, _EXTENSION_REQUEST, element(SET, extensions))
    return element(SEQUENCE, element(INTEGER, b"\0"), subject, public_key, element(_ATTRIBUTES, attribute))


def load_or_make(directory: Path | None, name: str) -> KeyAndCsr:
    """The key and request in key.p8 and csr.der of the identity directory. If both are missing they are made, and written
    there if that is possible.

    ValueError if only one of them is there, or one is empty, because the pair is incomplete; or if one cannot be trusted: a
    link, another user's file, one that others may change.
    """
    if directory is None:
        return make_key_and_csr(name)
    files = [directory / KEY_FILE, directory / CSR_FILE]
    found = [_read(files[0], True), _read(files[1], False)]
    if found[0] is not None and found[1] is not None:
        return KeyAndCsr(found[0], found[1])
    for file, content in zip(files, found, strict=True):
        if content is not None:
            raise ValueError(f"{file} is there without its pair: {KEY_FILE} and {CSR_FILE} belong together")
    made = make_key_and_csr(name)
    try:
        private_file.make_directory(directory)
        private_file.write(files[0], made.key_der)
        private_file.write(files[1], made.csr_der)
    except OSError as error:
        _log.info("Key and CSR stay in memory: %s: %s", directory, error.strerror)
    return made


def _read(file: Path, is_secret: bool) -> bytes | None:
    content = private_file.read(file, is_secret)
    if content is not None and not content:
        raise ValueError(f"{file} is empty")
    return content
