"""Revocation: which tokens and certificates are no longer valid, and the list as OpenSSL reads it."""

from __future__ import annotations

import logging
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from proxy.mesh.identity.authority import CertificateAuthority, Signed, open_ca
from proxy.mesh.identity.certificates import certificate_pem
from proxy.mesh.identity.issued import Certificate, Issued
from proxy.mesh.identity.revoked import Revocations, publish_lists, revoke
from proxy.mesh.state import State, StateError
from tests.mesh.identity.test_authority import csr
from tests.mesh.kit import WEB

NOW = 1_800_000_000.0


def entry(serial: int, issued_at: float, identity: str = WEB, issuer: str = "") -> Certificate:
    return Certificate(serial, identity, "", issuer, int(issued_at), int(issued_at) + 86400)


def test_a_revoked_identity_loses_what_was_issued_until_then(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.create()
    issued = Issued(state, NOW)
    for serial, at in ((1, NOW - 10), (2, NOW + 10)):
        issued.add(entry(serial, at), NOW)
    issued.add(entry(3, NOW - 10, "other.identity"), NOW)
    revocations = Revocations(state, issued)
    revoke(state, NOW, WEB)
    assert not revocations.is_certificate_revoked(WEB, 1)
    assert revocations.refresh()
    assert not revocations.refresh()
    assert [revocations.is_certificate_revoked(WEB, serial) for serial in (1, 2, 99)] == [True, False, True]
    assert not revocations.is_certificate_revoked("other.identity", 3)
    assert revocations.is_token_revoked(WEB, int(NOW))
    assert not revocations.is_token_revoked(WEB, int(NOW) + 1)
    assert not revocations.is_token_revoked("other.identity", 0)


def test_a_revoked_serial_is_one_certificate(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.create()
    revoke(state, NOW, serial=0xAB)
    revoke(state, NOW, serial=0xCD)
    revocations = Revocations(state, Issued(state, NOW))
    assert [revocations.is_certificate_revoked(WEB, serial) for serial in (0xAB, 0xCD, 0xEF)] == [True, True, False]


def test_what_was_revoked_and_issued_is_known_to_the_next_process(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.create()
    issued = Issued(state, NOW)
    issued.add(entry(7, NOW - 5), NOW)
    issued.add(entry(8, NOW - 90_000), NOW)
    revoke(state, NOW, WEB)
    again = Issued(state, NOW)
    assert [one.serial for one in again.all()] == [7]
    assert list(Revocations(state, again).certificates()) == [(7, int(NOW), "")]
    assert (tmp_path / "issued.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_off_costs_no_other(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.create()
    Issued(state, NOW).add(entry(7, NOW), NOW)
    state.append("issued.jsonl", b'{"serial": "8", "ident\n')
    Issued(state, NOW).add(entry(9, NOW), NOW)
    assert {one.serial for one in Issued(state, NOW).all()} == {7, 9}


def test_the_book_forgets_what_has_expired(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.create()
    issued = Issued(state, NOW)
    for serial in range(900):
        issued.add(entry(serial, NOW), NOW)
    later = NOW + 90_000
    for serial in range(1000, 1100):
        issued.add(entry(serial, later), later)
    assert {one.serial for one in issued.all()} == set(range(1000, 1100))
    assert (tmp_path / "issued.jsonl").read_bytes().count(b"\n") == 100


def test_the_book_has_an_end_however_often_somebody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.mesh.identity.issued.MOST", 300)
    state = State(tmp_path)
    state.create()
    issued = Issued(state, NOW)
    for serial in range(2500):
        issued.add(entry(serial, NOW), NOW)
    assert {one.serial for one in issued.all()} == set(range(2200, 2500))
    assert (tmp_path / "issued.jsonl").read_bytes().count(b"\n") <= 1300
    revoke(state, NOW, WEB)
    assert Revocations(state, issued).is_certificate_revoked(WEB, 5)


def test_what_cannot_be_read_stops_the_start_and_nothing_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = State(tmp_path)
    state.create()
    revoke(state, NOW, WEB)
    revocations = Revocations(state, Issued(state, NOW))
    state.write("revoked.json", b'{"identities": 5}')
    with caplog.at_level(logging.ERROR):
        assert not revocations.refresh()
        assert not revocations.refresh()
    assert len(caplog.messages) == 1
    assert revocations.is_token_revoked(WEB, int(NOW))
    with pytest.raises(StateError, match=r"revoked\.json"):
        Revocations(state, Issued(state, NOW))


def verdict(directory: Path, authority: CertificateAuthority, signed: Signed) -> str:
    leaf, *above = (x509.load_der_x509_certificate(der) for der in (signed.leaf_der, *signed.intermediates_der))
    (directory / "leaf").write_bytes(certificate_pem(leaf))
    (directory / "above").write_bytes(certificate_pem(*above))
    command = [
        "openssl",
        "verify",
        "-crl_check",
        "-CAfile",
        "ca.crt",
        "-CRLfile",
        "crl.pem",
        "-untrusted",
        "above",
        "leaf",
    ]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=20, check=False)
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_takes_the_list(tmp_path: Path) -> None:
    state = State(tmp_path)
    authority = open_ca(state)
    now = datetime.now(UTC)
    issued = Issued(state, now.timestamp())
    good, bad = (authority.sign(csr(WEB), WEB) for _ in range(2))
    for one in (good, bad):
        issued.add(entry(one.serial, now.timestamp(), WEB, one.issuer_key_id), now.timestamp())
    revoke(state, now.timestamp(), serial=bad.serial)
    publish_lists(state, authority, Revocations(state, issued), now)
    assert verdict(tmp_path, authority, good) == "leaf: OK\n"
    assert "certificate revoked" in verdict(tmp_path, authority, bad)
    assert (tmp_path / "crl.pem").stat().st_mode & 0o777 == 0o644
