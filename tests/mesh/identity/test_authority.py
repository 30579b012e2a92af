"""The CA of a state directory: it is made once and readable by its owner alone; what it signs and what it refuses."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.verification import PolicyBuilder, Store

from proxy.mesh.identity.authority import IssuerError, open_ca
from proxy.mesh.identity.csr import CsrError, MalformedCsrError, UnsupportedKeyError
from proxy.mesh.state import State, StateError
from tests.mesh.kit import WEB


def csr(*names: str, key: CertificateIssuerPrivateKeyTypes | None = None, common_name: str = "") -> bytes:
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)] if common_name else []
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False)
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, digest).public_bytes(serialization.Encoding.DER)


def test_keys_and_directory_are_their_owners_alone(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "state"
    open_ca(State(directory))
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "ca.key").stat().st_mode & 0o777 == 0o600
    assert (directory / "ca.crt").stat().st_mode & 0o777 == 0o644
    (directory / "ca.key").chmod(0o604)
    with pytest.raises(StateError, match="mode 0604"):
        open_ca(State(directory))


def test_it_is_the_same_ca_the_next_time(tmp_path: Path) -> None:
    assert open_ca(State(tmp_path)).anchors_pem == open_ca(State(tmp_path)).anchors_pem


def anchors(directory: Path) -> bytes:
    return open_ca(State(directory)).anchors_pem


def test_processes_that_begin_at_once_share_one_ca(tmp_path: Path) -> None:
    with get_context("spawn").Pool(3) as pool:
        assert len(set(pool.map(anchors, [tmp_path] * 3))) == 1


def test_a_key_that_is_not_the_certificates_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        open_ca(State(tmp_path / name))
    (tmp_path / "one" / "ca.crt").write_bytes((tmp_path / "two" / "ca.crt").read_bytes())
    with pytest.raises(StateError, match="is not the key of"):
        open_ca(State(tmp_path / "one"))
    (tmp_path / "one" / "ca.key").write_bytes(b"nonsense")
    with pytest.raises(StateError, match=r"ca\.key"):
        open_ca(State(tmp_path / "one"))


def test_a_leaf_chains_to_the_anchors_and_carries_one_name(tmp_path: Path) -> None:
    authority = open_ca(State(tmp_path))
    key = ec.generate_private_key(ec.SECP256R1())
    signed = authority.sign(csr(WEB, key=key, common_name=WEB), WEB)
    leaf = x509.load_der_x509_certificate(signed.leaf_der)
    (issuer,) = [x509.load_der_x509_certificate(der) for der in signed.intermediates_der]
    roots = Store(x509.load_pem_x509_certificates(authority.anchors_pem))
    verified = PolicyBuilder().store(roots).build_client_verifier().verify(leaf, [issuer])
    assert [name.value for name in verified.subjects or ()] == [WEB]
    assert leaf.public_key() == key.public_key()
    assert list(leaf.subject) == []
    assert signed.valid_until == leaf.not_valid_after_utc
    assert issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def test_row109_a_workload_whose_clock_is_minutes_behind_takes_its_certificate(tmp_path: Path) -> None:
    authority = open_ca(State(tmp_path))
    signed = authority.sign(csr(WEB), WEB)
    chain = [x509.load_der_x509_certificate(der) for der in (signed.leaf_der, *signed.intermediates_der)]
    roots = x509.load_pem_x509_certificates(authority.anchors_pem)
    behind = datetime.now(UTC) - timedelta(minutes=4)
    assert all(one.not_valid_before_utc < behind for one in (*chain, *roots))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_accepts_the_chain_for_both_ends(tmp_path: Path) -> None:
    authority = open_ca(State(tmp_path))
    signed = authority.sign(csr(WEB), WEB)
    for name, der in (("leaf", signed.leaf_der), ("issuer", signed.intermediates_der[0])):
        pem = x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)
        (tmp_path / name).write_bytes(pem)
    for purpose in ("sslclient", "sslserver"):
        command = [
            "openssl",
            "verify",
            "-x509_strict",
            "-purpose",
            purpose,
            "-CAfile",
            "ca.crt",
            "-untrusted",
            "issuer",
            "leaf",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
        assert done.stdout == "leaf: OK\n", done.stderr


def test_an_issuer_is_replaced_before_a_certificate_would_outlive_it(tmp_path: Path) -> None:
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    authority = open_ca(State(tmp_path), lambda: now[0])
    issuers = set()
    for _ in range(5):
        signed = authority.sign(csr(WEB), WEB)
        (issuer,) = [x509.load_der_x509_certificate(der) for der in signed.intermediates_der]
        assert signed.valid_until < issuer.not_valid_after_utc <= now[0] + timedelta(hours=50)
        issuers.add(issuer.serial_number)
        now[0] += timedelta(hours=20)
    assert 2 <= len(issuers) < 5


def test_an_issuer_that_was_made_while_the_clock_was_ahead_is_replaced(tmp_path: Path) -> None:
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    open_ca(State(tmp_path), lambda: now[0])
    now[0] += timedelta(days=90)
    authority = open_ca(State(tmp_path), lambda: now[0])
    ahead = authority.sign(csr(WEB), WEB).issuer_key_id
    now[0] -= timedelta(days=89)
    for corrected in (authority, open_ca(State(tmp_path), lambda: now[0])):  # while it runs, and at a start
        signed = corrected.sign(csr(WEB), WEB)
        (issuer,) = [x509.load_der_x509_certificate(der) for der in signed.intermediates_der]
        assert signed.issuer_key_id != ahead and issuer.not_valid_before_utc < now[0]


def test_a_root_that_is_not_valid_yet_is_told_with_both_times(tmp_path: Path) -> None:
    now = [datetime(2030, 1, 2, 3, 4, tzinfo=UTC)]
    authority = open_ca(State(tmp_path), lambda: now[0])
    now[0] -= timedelta(days=1)
    told = "is not valid before 2030-01-02 .* UTC, and it is 2030-01-01 03:04; was the clock ahead, or is it behind"
    with pytest.raises(StateError, match=rf"ca\.crt: {told}"):
        open_ca(State(tmp_path), lambda: now[0])
    with pytest.raises(IssuerError, match=f"the issuer's certificate {told}"):
        authority.sign(csr(WEB), WEB)
    now[0] += timedelta(days=1)
    authority.sign(csr(WEB), WEB)


@pytest.mark.parametrize(
    ("request_der", "text"),
    [
        (csr("other.name"), "does not match requested identity: csr=other.name"),
        (csr(WEB, "other.name"), "exactly one DNSName"),
        (csr(), "exactly one DNSName"),
        (csr(WEB, common_name="other"), "common name does not match"),
    ],
)
def test_a_request_for_another_name_is_refused(request_der: bytes, text: str, tmp_path: Path) -> None:
    with pytest.raises(CsrError, match=text):
        open_ca(State(tmp_path)).sign(request_der, WEB)


def test_a_request_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    der = bytearray(csr(WEB))
    der[-1] ^= 1
    with pytest.raises(MalformedCsrError):
        open_ca(State(tmp_path)).sign(bytes(der), WEB)


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP521R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["P-256", "P-384", "P-521", "Ed25519", "RSA 2048"],
)
def test_b44_keys_that_tls_can_use_are_signed(key: CertificateIssuerPrivateKeyTypes, tmp_path: Path) -> None:
    signed = open_ca(State(tmp_path)).sign(csr(WEB, key=key), WEB)
    assert x509.load_der_x509_certificate(signed.leaf_der).public_key() == key.public_key()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (ec.generate_private_key(ec.SECP192R1()), "on the curve secp192r1"),
        (ec.generate_private_key(ec.SECP224R1()), "on the curve secp224r1"),
        (ec.generate_private_key(ec.SECP256K1()), "on the curve secp256k1"),
        (rsa.generate_private_key(65537, 1024), "an RSA key of 1024 bits"),
    ],
    ids=["secp192r1", "secp224r1", "secp256k1", "RSA 1024"],
)
def test_b44_other_keys_are_refused(key: CertificateIssuerPrivateKeyTypes, text: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedKeyError, match=text):
        open_ca(State(tmp_path)).sign(csr(WEB, key=key), WEB)


def test_a_request_without_end_is_not_parsed(tmp_path: Path) -> None:
    with pytest.raises(MalformedCsrError, match="16384 at most"):
        open_ca(State(tmp_path)).sign(csr(WEB) + bytes(20_000), WEB)


def test_an_issuer_outlives_the_process_that_made_it(tmp_path: Path) -> None:
    first, second = (open_ca(State(tmp_path)).sign(csr(WEB), WEB) for _ in range(2))
    assert first.issuer_key_id == second.issuer_key_id
    assert (tmp_path / "issuer.pem").stat().st_mode & 0o777 == 0o600


@contextmanager
def disk_that_is_full_behind(most_bytes: int) -> Iterator[None]:
    """Files may have so many bytes; what is written beyond fails, or is written in part."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("most_bytes", [100, 300, 700])  # nothing fits; the key does; the certificate too
def test_a_start_that_a_full_disk_has_ended_can_be_repeated(most_bytes: int, tmp_path: Path) -> None:
    with disk_that_is_full_behind(most_bytes), pytest.raises(StateError):
        open_ca(State(tmp_path))
    authority = open_ca(State(tmp_path))
    authority.sign(csr(WEB), WEB)
    assert open_ca(State(tmp_path)).anchors_pem == authority.anchors_pem


def test_a_certificate_that_is_gone_is_made_again_for_its_key(tmp_path: Path) -> None:
    state = State(tmp_path)
    key = x509.load_pem_x509_certificate(open_ca(state).anchors_pem).public_key()
    state.anchors_file.unlink()
    assert x509.load_pem_x509_certificate(open_ca(state).anchors_pem).public_key() == key


def test_a_line_is_added_whole_or_not_at_all(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.append("lines", b"one\n")
    with disk_that_is_full_behind(6), pytest.raises(StateError, match="lines: No space left on device"):
        state.append("lines", b"two\n")
    state.append("lines", b"three\n")
    assert (tmp_path / "lines").read_bytes() == b"one\nthree\n"
