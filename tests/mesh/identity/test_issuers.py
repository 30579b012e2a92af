"""A CA that is brought as files: what is refused, and how a change of the files takes effect; and roots that are
rotated.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from proxy.mesh.identity.authority import CertificateAuthority, open_ca
from proxy.mesh.identity.certificates import Signer, certificate_pem, make_authority, private_pem
from proxy.mesh.identity.csr import CsrError
from proxy.mesh.identity.root.issuers import Brought
from proxy.mesh.state import State, StateError
from tests.mesh.identity.test_authority import csr
from tests.mesh.kit import WEB

NOW = datetime.now(UTC)
YEAR = timedelta(days=365)


def root(name: str = "corporate root") -> Signer:
    return make_authority(name, NOW, NOW + YEAR)


def issuer(parent: Signer, name: str = "mesh issuer", life: timedelta = YEAR) -> Signer:
    return make_authority(name, NOW - timedelta(days=2), NOW + life, parent)


def write(directory: Path, anchors: bytes, certificate: bytes, key: bytes) -> Brought:
    directory.mkdir(exist_ok=True)
    files = Brought(directory / "ca.crt", directory / "tls.crt", directory / "tls.key")
    for path, data in zip(files, (anchors, certificate, key), strict=True):
        path.write_bytes(data)
    return files


def brought(directory: Path, top: Signer, below: Signer) -> Brought:
    anchors = certificate_pem(top.certificate)
    return write(directory, anchors, certificate_pem(below.certificate, *below.above), private_pem(below.key))


def signed_by(authority: CertificateAuthority) -> str:
    return authority.sign(csr(WEB), WEB).issuer_key_id


def test_an_intermediate_under_a_root_signs_and_its_anchors_are_published(tmp_path: Path) -> None:
    top = root()
    below = issuer(top)
    authority = open_ca(State(tmp_path / "state"), brought=brought(tmp_path / "files", top, below))
    signed = authority.sign(csr(WEB), WEB)
    (sent,) = [x509.load_der_x509_certificate(der) for der in signed.intermediates_der]
    assert sent == below.certificate
    x509.load_der_x509_certificate(signed.leaf_der).verify_directly_issued_by(sent)
    assert (tmp_path / "state" / "ca.crt").read_bytes() == certificate_pem(top.certificate)
    assert not (tmp_path / "state" / "ca.key").exists()


def test_certificates_between_the_issuer_and_its_root_are_sent_with_it(tmp_path: Path) -> None:
    top = root()
    middle = Signer(top.key, top.certificate)
    lower_root = make_authority("middle", NOW, NOW + YEAR, middle)
    # An issuer of `make_authority` may not sign another one; only the order of the certificates that are sent matters here.
    below = issuer(lower_root)._replace(above=(lower_root.certificate,))
    files = brought(tmp_path / "files", top, below)
    signed = open_ca(State(tmp_path / "state"), brought=files).sign(csr(WEB), WEB)
    sent = [x509.load_der_x509_certificate(der) for der in signed.intermediates_der]
    assert sent == [below.certificate, lower_root.certificate]


def test_a_root_that_was_made_before_is_put_aside_not_lost(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    made = open_ca(state).anchors_pem
    key = (state.directory / "ca.key").read_bytes()
    top = root()
    open_ca(state, brought=brought(tmp_path / "files", top, issuer(top)))
    assert (state.directory / "ca.crt").read_bytes() == certificate_pem(top.certificate)
    assert (state.directory / "ca-made.crt").read_bytes() == made
    assert (state.directory / "ca-made.key").read_bytes() == key
    with pytest.raises(StateError, match="is the certificate of another CA"):
        open_ca(state)


def test_files_that_cannot_be_used_are_refused_by_name(tmp_path: Path) -> None:
    top, state = root(), State(tmp_path / "state")
    below, other = issuer(top), issuer(root("another"))
    anchors, certificate, key = (
        certificate_pem(top.certificate),
        certificate_pem(below.certificate),
        private_pem(below.key),
    )
    leaf = open_ca(State(tmp_path / "other")).sign(csr(WEB), WEB).leaf_der
    leaf_pem = certificate_pem(x509.load_der_x509_certificate(leaf))
    expired = issuer(top, life=timedelta(days=-1))
    for files, text in (
        ((anchors, certificate, private_pem(other.key)), r"tls\.key: is not the key of .*tls\.crt"),
        (
            (anchors, certificate_pem(other.certificate), private_pem(other.key)),
            r"tls\.crt: does not lead to a trust anchor",
        ),
        ((anchors, certificate, b"nonsense"), r"tls\.key: no private key in PEM"),
        ((b"nonsense", certificate, key), r"ca\.crt: no certificates in PEM"),
        (
            (anchors, certificate_pem(expired.certificate), private_pem(expired.key)),
            r"tls\.crt: is valid from .* not now",
        ),
    ):
        with pytest.raises(StateError, match=text):
            open_ca(state, brought=write(tmp_path / "files", *files))
    made = write(tmp_path / "files", anchors, leaf_pem, key)
    with pytest.raises(StateError):
        open_ca(state, brought=made)
    with pytest.raises(StateError, match="No such file"):
        open_ca(state, brought=made._replace(key=tmp_path / "nowhere"))
    assert not (state.directory / "ca.crt").exists()


def by_rename(directory: Path, new: Path) -> None:
    for path in new.iterdir():
        path.rename(directory / path.name)


def in_place(directory: Path, new: Path) -> None:
    for path in new.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize("change", [by_rename, in_place])
def test_files_that_change_take_effect(change: Callable[[Path, Path], None], tmp_path: Path) -> None:
    top = root()
    first, second = issuer(top), issuer(top)
    authority = open_ca(State(tmp_path / "state"), brought=brought(tmp_path / "files", top, first))
    assert not authority.refresh()
    assert signed_by(authority) == first.key_id
    brought(tmp_path / "new", top, second)
    change(tmp_path / "files", tmp_path / "new")
    assert authority.refresh()
    assert signed_by(authority) == second.key_id
    assert [one.key_id for one in authority.signers] == [second.key_id, first.key_id]
    assert not authority.refresh()


def test_files_behind_a_link_that_is_moved_take_effect(tmp_path: Path) -> None:
    """The kubelet replaces a mounted Secret by moving a link."""
    top = root()
    first, second = issuer(top), issuer(top)
    mount = tmp_path / "mount"
    brought(tmp_path / "..1", top, first)
    brought(tmp_path / "..2", top, second)
    mount.mkdir()
    (mount / "..data").symlink_to(tmp_path / "..1")
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (mount / name).symlink_to(Path("..data") / name)
    files = Brought(mount / "ca.crt", mount / "tls.crt", mount / "tls.key")
    authority = open_ca(State(tmp_path / "state"), brought=files)
    (mount / "..data_tmp").symlink_to(tmp_path / "..2")
    os.rename(mount / "..data_tmp", mount / "..data")
    assert authority.refresh()
    assert signed_by(authority) == second.key_id


def test_half_of_a_new_pair_changes_nothing_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    top = root()
    first, second = issuer(top), issuer(top)
    files = brought(tmp_path / "files", top, first)
    authority = open_ca(State(tmp_path / "state"), brought=files)
    files.certificate.write_bytes(certificate_pem(second.certificate))
    with caplog.at_level(logging.ERROR):
        assert [authority.refresh() for _ in range(3)] == [False] * 3
    assert len(caplog.messages) == 1
    assert "is not the key of" in caplog.messages[0]
    assert signed_by(authority) == first.key_id
    files.key.write_bytes(private_pem(second.key))
    assert authority.refresh()
    assert signed_by(authority) == second.key_id


def test_an_issuer_that_has_expired_signs_nothing(tmp_path: Path) -> None:
    top, now = root(), [NOW]
    files = brought(tmp_path / "files", top, issuer(top, life=timedelta(hours=30)))
    authority = open_ca(State(tmp_path / "state"), lambda: now[0], brought=files)
    now[0] = NOW + timedelta(hours=20)
    # The last certificates that it signed expire with it.
    assert authority.sign(csr(WEB), WEB).valid_until <= NOW + timedelta(hours=30)
    now[0] = NOW + timedelta(hours=31)
    with pytest.raises(CsrError, match="expired"):
        authority.sign(csr(WEB), WEB)
