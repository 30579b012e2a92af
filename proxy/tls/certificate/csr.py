"""The workload's key and its certificate signing request (docs/linkerd/identity-and-tls.md, section 1).

ECDSA P-256, kept for the life of the process and never rotated. Existing files are used if no other user can have put them
there (private_file.py); if none can be written, key and request live in memory.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, NamedTuple

from proxy.tls.certificate import private_file

_log: Final = logging.getLogger(__name__)

KEY_FILE: Final = "key.p8"
CSR_FILE: Final = "csr.der"


class KeyAndCsr(NamedTuple):
    key_der: bytes
    """PKCS#8."""
    csr_der: bytes
    """PKCS#10: subject CN, exactly one SAN, a DNS name."""


def make_key_and_csr(name: str) -> KeyAndCsr:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    # RFC 5280 limits a CN to 64 characters, and a DNS name may have 253. Verifiers look at the SAN.
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if len(name) <= 64 else []
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name(subject))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_der = key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyAndCsr(key_der, request.public_bytes(serialization.Encoding.DER))


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
