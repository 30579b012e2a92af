"""Certificates for tests: a CA and any leaf that a test asks for, made in memory."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proxy.tls.credentials import Credentials

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)


@dataclass(frozen=True)
class Leaf:
    certificate_der: bytes
    key_der: bytes
    """PKCS#8."""


def make_ca(name: str = "root.linkerd.cluster.local", issuer: Authority | None = None) -> Authority:
    """A root, or an intermediate if another authority issues it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, issuer.certificate.subject if issuer else subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(issuer.key if issuer else key, hashes.SHA256())
    )
    return Authority(key, certificate)


@cache
def the_ca() -> Authority:
    """The CA for all tests that need no particular one."""
    return make_ca()


def issue(
    ca: Authority,
    *names: str | x509.GeneralName,
    cn: str = "",
    key: ec.EllipticCurvePrivateKey | None = None,
    age: datetime.timedelta = _DAY,
    lifetime: datetime.timedelta = 2 * _DAY,
    is_ca: bool | None = None,
) -> Leaf:
    """A leaf with these SANs, in order: DNS names, URIs (`spiffe://…`), or any other general name. With `is_ca` None
    it has no basicConstraints.
    """
    own = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)] if cn else [])
    builder = _builder(subject, ca.certificate.subject, own.public_key(), age, lifetime).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
    if is_ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    certificate = builder.sign(ca.key, hashes.SHA256())
    key_der = own.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Leaf(certificate.public_bytes(serialization.Encoding.DER), key_der)


def credentials(name: str, ca: Authority | None = None, *, is_certified: bool = True) -> Credentials:
    """The credentials of a workload that this authority has certified; `the_ca()` if none is given."""
    ca = ca or the_ca()
    made = Credentials(name, ca.pem)
    if is_certified:
        leaf = issue(ca, name)
        made.install(leaf.certificate_der, [], leaf.key_der, 2e9)
    return made


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    age: datetime.timedelta = _DAY,
    lifetime: datetime.timedelta = 3650 * _DAY,
) -> x509.CertificateBuilder:
    start = datetime.datetime.now(datetime.UTC) - age
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + lifetime)
    )


def _general(name: str | x509.GeneralName) -> x509.GeneralName:
    if isinstance(name, x509.GeneralName):
        return name
    return x509.UniformResourceIdentifier(name) if "://" in name else x509.DNSName(name)
