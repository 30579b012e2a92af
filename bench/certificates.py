"""Certificates for candidates that have no identity service: one CA, an `out.test` and an `in.test` leaf (P-256)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make(folder: Path) -> None:
    """Write ca.pem, and for each of `out` and `in` NAME.crt, NAME.key and NAME.pem (both)."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    ca = _builder(ca_name, ca_name, ca_key.public_key())
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    root = ca.sign(ca_key, hashes.SHA256())
    (folder / "ca.pem").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    for name in ("out", "in"):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}.test")])
        leaf = _builder(subject, ca_name, key.public_key())
        leaf = leaf.add_extension(x509.SubjectAlternativeName([x509.DNSName(f"{name}.test")]), critical=False)
        certificate = leaf.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / f"{name}.crt").write_bytes(certificate)
        (folder / f"{name}.key").write_bytes(private)
        (folder / f"{name}.pem").write_bytes(certificate + private)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
