"""The certificates and lists that the mesh signs: roots, issuers, workloads' certificates, revocation lists.

Names and extensions are those of Linkerd's (recording of Certify): an empty subject and one DNS name for a workload,
20 s of clock skew on both sides, an issuer that may sign no further authority.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proxy.mesh.identity.csr import PublicKey

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey

SKEW: Final = timedelta(seconds=20)
BACKDATING: Final = timedelta(minutes=5)
"""How long before it was made a certificate is valid from: for workloads whose clocks are behind. Linkerd's issuer backdates
by SKEW, which a machine without NTP misses easily."""
_PEM: Final = serialization.Encoding.PEM
_DER: Final = serialization.Encoding.DER


class Signer(NamedTuple):
    """A certificate that may sign, with its key."""

    key: PrivateKey
    certificate: x509.Certificate
    above: tuple[x509.Certificate, ...] = ()
    """The certificates between this one and its trust anchor, nearest first."""

    @property
    def chain_der(self) -> tuple[bytes, ...]:
        """What is sent after a leaf: this certificate and those above it, without the anchor."""
        return tuple(one.public_bytes(_DER) for one in (self.certificate, *self.above))

    @property
    def key_id(self) -> str:
        """Distinguishes this issuer from others of the same name."""
        return x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()).digest.hex()


def make_authority(
    common_name: str, now: datetime, until: datetime, parent: Signer | None = None, key: PrivateKey | None = None
) -> Signer:
    """A new root (no parent), or an issuer that may sign no further authority; with a new key, unless it has one."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if parent is None else parent.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None if parent is None else 0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if parent is None:
        return Signer(key, builder.sign(key, hashes.SHA256()))
    builder = builder.add_extension(_authority_key_id(parent), critical=False)
    return Signer(key, builder.sign(parent.key, digest_of(parent.key)))


def make_leaf(key: PublicKey, name: str, now: datetime, until: datetime, issuer: Signer) -> x509.Certificate:
    """A workload's certificate, for client and server."""
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(until)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(_authority_key_id(issuer), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
        .sign(issuer.key, digest_of(issuer.key))
    )


def make_revocation_list(
    issuer: Signer, revoked: Iterable[tuple[int, datetime]], now: datetime, next_update: datetime
) -> bytes:
    """The PEM of an issuer's list of revoked serials, each with when it was revoked (RFC 5280, section 5)."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(now)
        .next_update(next_update)
        .add_extension(_authority_key_id(issuer), critical=False)
        .add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
    )
    for serial, at in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(at).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(issuer.key, digest_of(issuer.key)).public_bytes(_PEM)


def too_early(certificate: x509.Certificate, now: datetime) -> str:
    """What to say of a certificate that is not valid yet; empty if it is."""
    since = certificate.not_valid_before_utc
    if since <= now:
        return ""
    return f"is not valid before {since:%Y-%m-%d %H:%M} UTC, and it is {now:%Y-%m-%d %H:%M}; was the clock ahead, or is it behind?"


def digest_of(key: PrivateKey) -> hashes.SHA256 | hashes.SHA384 | hashes.SHA512 | None:
    """The digest that a key signs with, according to its strength; none for Ed25519."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return None
    size = key.curve.key_size if isinstance(key, ec.EllipticCurvePrivateKey) else 256
    return hashes.SHA256() if size <= 256 else hashes.SHA384() if size <= 384 else hashes.SHA512()


def certificate_pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(one.public_bytes(_PEM) for one in certificates)


def private_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _authority_key_id(issuer: Signer) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
