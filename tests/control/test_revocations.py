"""The file of revocation lists while a sidecar runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from proxy.control.revocations import LOOK_S, Revocations
from proxy.tls.certificate.revoked import key_of
from proxy.tls.credentials import Credentials
from tests.kit.certificates import issue, the_ca
from tests.tls.test_handshake import SERVER
from tests.tls.test_revoked import certified, revocation_list, serial_of


class Loop:
    def __init__(self) -> None:
        self.due: list[Any] = []

    def call_later(self, delay_s: float, callback: Any) -> Any:
        assert delay_s == LOOK_S
        self.due.append(callback)
        return self

    def cancel(self) -> None:
        self.due.clear()

    def turn(self) -> None:
        (callback,) = self.due
        self.due.clear()
        callback()


def test_it_is_followed_and_what_cannot_be_used_changes_nothing_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, beside = tmp_path / "crl.pem", tmp_path / "new"
    credentials, loop = Credentials(SERVER, the_ca().pem), Loop()
    der = issue(the_ca(), SERVER).certificate_der
    file.write_text(revocation_list(the_ca()))
    revocations = Revocations(loop, str(file), credentials)
    changes: list[int] = []
    credentials.revoked.subscribe(lambda revoked: changes.append(len(revoked)))
    with caplog.at_level(logging.INFO):
        revocations.start()
        loop.turn()
        assert not changes and not caplog.messages
        beside.write_text(revocation_list(the_ca(), serial_of(der)))
        beside.rename(file)
        loop.turn()
        assert credentials.revoked.value == {key_of(der)}
        for broken in ("nonsense", None, None):
            file.write_text(broken) if broken is not None else file.unlink(missing_ok=True)
            loop.turn()
            loop.turn()
        assert credentials.revoked.value == {key_of(der)}
        file.write_text(revocation_list(the_ca(), serial_of(der), 1, 2))
        loop.turn()
    assert changes == [1, 3]
    assert caplog.messages == [
        f"Revocations read from {file}, refused certificates: 1",
        f"Revocations stay as they are: {file}: no revocation list in PEM",
        f"Revocations stay as they are: {file}: No such file or directory",
        f"Revocations read from {file}, refused certificates: 3",
    ]
    revocations.close()
    assert not loop.due


def test_whose_own_certificate_is_revoked_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "crl.pem"
    own, der = certified(SERVER)
    file.write_text(revocation_list(the_ca(), serial_of(der)))
    revocations = Revocations(Loop(), str(file), own)
    revocations.look()
    file.write_text(revocation_list(the_ca(), serial_of(der), 7))
    revocations.look()
    assert caplog.messages == ["Our own certificate has been revoked: peers that read the list refuse it"]


def test_without_a_file_there_is_nothing_to_follow() -> None:
    loop = Loop()
    Revocations(loop, None, Credentials(SERVER, the_ca().pem)).start()
    assert not loop.due
