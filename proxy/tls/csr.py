"""The workload's key and its certificate signing request (reference: identity-and-tls, section 1).

Law: ECDSA P-256, kept for the life of the process and never rotated. Files
that are there are used as they are; where none can be written, key and
request live in memory.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final, NamedTuple

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
    # RFC 5280 ends a CN at 64 characters, a DNS name may have 253: the SAN is what counts.
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
    """key.p8 and csr.der of the identity directory; made, and written there if that is possible, when both are missing.

    ValueError if only one of them is there, or one is empty: the other side of such a pair is lost.
    """
    if directory is None:
        return make_key_and_csr(name)
    files = [directory / KEY_FILE, directory / CSR_FILE]
    found = [_read(file) for file in files]
    if found[0] is not None and found[1] is not None:
        return KeyAndCsr(found[0], found[1])
    for file, content in zip(files, found, strict=True):
        if content is not None:
            raise ValueError(f"{file} is there without its pair: {KEY_FILE} and {CSR_FILE} belong together")
    made = make_key_and_csr(name)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(files[0], made.key_der)
        _write(files[1], made.csr_der)
    except OSError as error:
        _log.info("Key and CSR stay in memory: %s", error)
    return made


def _read(file: Path) -> bytes | None:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    if not content:
        raise ValueError(f"{file} is empty")
    return content


def _write(file: Path, content: bytes) -> None:
    """Whole or not at all, readable by nobody else."""
    draft = file.with_suffix(f".{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
    draft.replace(file)
