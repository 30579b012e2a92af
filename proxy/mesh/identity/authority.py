"""CA: a root kept in the state directory, short-lived issuers under it, workload certificates under those.

Law: the root signs issuers only; an issuer lives in memory and is replaced
before a certificate could outlive it. Shapes and names of certificates are
Linkerd's (golden recording of Certify): ECDSA, empty subject, one DNS name,
20 s of clock skew on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proxy.mesh.model import CLUSTER_DOMAIN as DOMAIN
from proxy.mesh.model import MESH_NAMESPACE
from proxy.mesh.state import State, StateError

SKEW: Final = timedelta(seconds=20)
LEAF_LIFE: Final = timedelta(hours=24)
ISSUER_LIFE: Final = timedelta(hours=49)
ROOT_LIFE: Final = timedelta(days=3650)

KEY_FILE: Final = "ca.key"


class CsrError(Exception):
    """A signing request that asks for what it may not have."""


class MalformedCsrError(CsrError):
    """It cannot be read, or was not signed by its own key."""


class UnsupportedKeyError(CsrError):
    """Its key is no ECDSA key."""


class Signed(NamedTuple):
    leaf_der: bytes
    intermediates_der: tuple[bytes, ...]
    valid_until: datetime


class _Authority(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def _utc_now() -> datetime:
    return datetime.now(UTC)


class CertificateAuthority:
    __slots__ = ("_root", "_issuer", "_now", "_leaf_life")

    def __init__(
        self, root: _Authority, now: Callable[[], datetime] = _utc_now, leaf_life: timedelta = LEAF_LIFE
    ) -> None:
        self._root = root
        self._now = now
        self._leaf_life = leaf_life
        self._issuer = self._new_issuer()

    @property
    def anchors_pem(self) -> bytes:
        return self._root.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def leaf_life_s(self) -> float:
        return self._leaf_life.total_seconds()

    def sign(self, csr_der: bytes, name: str) -> Signed:
        """A certificate for `name`, which the request must carry as its only name; CsrError otherwise."""
        csr = _read_csr(csr_der, name)
        now = self._now()
        until = now + self._leaf_life + SKEW
        if self._issuer.certificate.not_valid_after_utc <= until:
            self._issuer = self._new_issuer()
        issuer = self._issuer
        leaf = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(issuer.certificate.subject)
            .public_key(csr)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(until)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(_authority_key_id(issuer), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
            .sign(issuer.key, hashes.SHA256())
        )
        der = serialization.Encoding.DER
        return Signed(leaf.public_bytes(der), (issuer.certificate.public_bytes(der),), leaf.not_valid_after_utc)

    def _new_issuer(self) -> _Authority:
        now = self._now()
        until = min(now + max(ISSUER_LIFE, 2 * self._leaf_life), self._root.certificate.not_valid_after_utc)
        return _authority(f"identity.{MESH_NAMESPACE}.{DOMAIN}", now, until, self._root)


def open_ca(
    state: State, now: Callable[[], datetime] = _utc_now, leaf_life: timedelta = LEAF_LIFE
) -> CertificateAuthority:
    """The CA of a state directory, made on first use; StateError if its files cannot be used."""
    with state.locked():
        key_pem = state.read_secret(KEY_FILE)
        if key_pem is None:
            root = _authority(f"root.{MESH_NAMESPACE}.{DOMAIN}", now(), now() + ROOT_LIFE, None)
            state.write("ca.crt", root.certificate.public_bytes(serialization.Encoding.PEM), 0o644)
            state.write(KEY_FILE, _private_pem(root.key))
        else:
            root = _read_root(state, key_pem)
    if root.certificate.not_valid_after_utc <= now() + leaf_life:
        raise StateError(f"{state.anchors_file}: expires {root.certificate.not_valid_after_utc:%Y-%m-%d}; start anew")
    return CertificateAuthority(root, now, leaf_life)


def _read_root(state: State, key_pem: bytes) -> _Authority:
    path = state.directory / KEY_FILE
    try:
        key = serialization.load_pem_private_key(key_pem, None)
        certificate = x509.load_pem_x509_certificate(state.anchors_file.read_bytes())
    except (ValueError, TypeError, OSError) as error:
        raise StateError(f"{path} and {state.anchors_file.name}: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise StateError(f"{path}: is not the key of {state.anchors_file}")
    return _Authority(key, certificate)


def _authority(common_name: str, now: datetime, until: datetime, parent: _Authority | None) -> _Authority:
    """A new root (no parent), or an issuer that may sign no further authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if parent is None else parent.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None if parent is None else 0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if parent is not None:
        builder = builder.add_extension(_authority_key_id(parent), critical=False)
    return _Authority(key, builder.sign(key if parent is None else parent.key, hashes.SHA256()))


def _authority_key_id(issuer: _Authority) -> x509.AuthorityKeyIdentifier:
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


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read_csr(der: bytes, name: str) -> ec.EllipticCurvePublicKey:
    """The public key of a request for exactly `name` (reference: identity-and-tls, section 1)."""
    try:
        csr = x509.load_der_x509_csr(der)
        common_names = [str(one.value) for one in csr.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        names = _alternative_names(csr)
        key = csr.public_key()
    except ValueError as error:
        raise MalformedCsrError(f"the certificate signing request cannot be read: {error}") from None
    if any(common_name not in ("", name) for common_name in common_names):
        raise CsrError(f"CSR common name does not match requested identity: csr={common_names[0]}; req={name}")
    dns_names = [one.value for one in names if isinstance(one, x509.DNSName)]
    if len(dns_names) != 1:
        raise CsrError("CSR must have exactly one DNSName")
    if len(names) != 1:
        raise CsrError("CSR must have no name but one DNSName")
    if dns_names[0] != name:
        raise CsrError(f"CSR name does not match requested identity: csr={dns_names[0]}; req={name}")
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UnsupportedKeyError("CSR must contain an ECDSA public key")
    try:
        is_signed = csr.is_signature_valid
    except (InvalidSignature, ValueError):
        is_signed = False
    if not is_signed:
        raise MalformedCsrError("the certificate signing request is not signed by its own key")
    return key


def _alternative_names(csr: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    try:
        return list(csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []
