"""Reading a certificate signing request: which names and which kinds of keys are taken.

Linkerd's identity service signs ECDSA keys only. Here Ed25519 and RSA of at least 2,048 bits are signed too, and of the
ECDSA curves those three that TLS 1.3 can sign with (RFC 8446, section 4.2.3).
"""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey

_CURVES: Final = frozenset(("secp256r1", "secp384r1", "secp521r1"))
_RSA_BITS: Final = range(2048, 8193)
"""From what is considered safe up to what is still cheap to verify."""

_MAX_BYTES: Final = 16_384
_KINDS: Final = "an ECDSA key (P-256, P-384 or P-521), an Ed25519 key or an RSA key of 2048 to 8192 bits"


class CsrError(Exception):
    """A signing request that is refused; the text says why."""


class MalformedCsrError(CsrError):
    """The request cannot be read, or was not signed by its own key."""


class UnsupportedKeyError(CsrError):
    """The key is of a kind for which no certificate is signed."""


def read_csr(der: bytes, name: str) -> PublicKey:
    """The public key of a request for exactly `name`, CsrError otherwise (docs/linkerd/identity-and-tls.md, section 1)."""
    if len(der) > _MAX_BYTES:
        raise MalformedCsrError(f"the certificate signing request has {len(der)} octets, {_MAX_BYTES} at most")
    try:
        csr = x509.load_der_x509_csr(der)
        common_names = [str(one.value) for one in csr.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        names = _alternative_names(csr)
    except ValueError as error:
        raise MalformedCsrError(f"the certificate signing request cannot be read: {error}") from None
    _check_names(common_names, names, name)
    key = _key_of(csr)
    if not _is_signed(csr):
        raise MalformedCsrError("the certificate signing request is not signed by its own key")
    return key


def _check_names(common_names: list[str], names: list[x509.GeneralName], name: str) -> None:
    if any(common_name not in ("", name) for common_name in common_names):
        raise CsrError(f"CSR common name does not match requested identity: csr={common_names[0]}; req={name}")
    dns_names = [one.value for one in names if isinstance(one, x509.DNSName)]
    if len(dns_names) != 1:
        raise CsrError("CSR must have exactly one DNSName")
    if len(names) != 1:
        raise CsrError("CSR must have no name but one DNSName")
    if dns_names[0] != name:
        raise CsrError(f"CSR name does not match requested identity: csr={dns_names[0]}; req={name}")


def _key_of(csr: x509.CertificateSigningRequest) -> PublicKey:
    try:
        key = csr.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnsupportedKeyError(f"CSR must contain {_KINDS}: {error}") from None
    if isinstance(key, ed25519.Ed25519PublicKey):
        return key
    if isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name in _CURVES:
            return key
        raise UnsupportedKeyError(f"CSR must contain {_KINDS}; it has one on the curve {key.curve.name}")
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size in _RSA_BITS:
            return key
        raise UnsupportedKeyError(f"CSR must contain {_KINDS}; it has an RSA key of {key.key_size} bits")
    raise UnsupportedKeyError(f"CSR must contain {_KINDS}")


def _is_signed(csr: x509.CertificateSigningRequest) -> bool:
    try:
        return csr.is_signature_valid
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        return False


def _alternative_names(csr: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    try:
        return list(csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []
