"""Files with secrets in a directory in which others can write: nothing of theirs is followed, taken over or trusted
(row B32).
"""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest

from proxy.tls.certificate import private_file
from proxy.tls.certificate.csr import load_or_make

NAME = "web.ns.serviceaccount.identity.linkerd.cluster.local"
OTHER_USER = 12345

needs_root = pytest.mark.needs_root
"""Only root can give a file to another user."""


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_written_whole_and_private_whatever_the_umask_and_whatever_stood_there(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "key", tmp_path / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    before = os.umask(0)
    try:
        for stand_in in ("nothing", "file", "link", "dangling link"):
            file.unlink(missing_ok=True)
            if stand_in == "file":
                file.write_bytes(b"an older one, which anybody may read")
                file.chmod(0o666)
            elif stand_in == "link":
                file.symlink_to(elsewhere)
            elif stand_in == "dangling link":
                file.symlink_to(tmp_path / "nowhere")
            private_file.write(file, b"secret")
            assert not file.is_symlink()
            assert mode_of(file) == 0o600
            assert private_file.read(file) == b"secret"
    finally:
        os.umask(before)
    assert elsewhere.read_bytes() == b"untouched"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["elsewhere", "key"]


def test_it_is_private_from_its_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just before the rename, no other user could open the file, and its name could not have been prepared."""
    seen: list[tuple[int, str]] = []
    rename = Path.replace

    def replace(self: Path, target: Path) -> Path:
        seen.append((mode_of(self), self.name))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    # A process number as short as that of a container's first process is in many a name by chance.
    monkeypatch.setattr(os, "getpid", lambda: 1_234_567_890)
    private_file.write(tmp_path / "key", b"secret")
    private_file.write(tmp_path / "key", b"secret")
    assert [mode for mode, _ in seen] == [0o600, 0o600]
    assert len({name for _, name in seen}) == 2
    assert all(str(os.getpid()) not in name for _, name in seen)


def test_a_disk_that_takes_nothing_is_said_and_nothing_is_left_behind(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            private_file.write(tmp_path / "key", b"secret")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"somebody's")
    (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="key is a symbolic link"):
        private_file.read(tmp_path / "key")


def test_a_pipe_holds_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(ValueError, match="key is not a regular file"):
        private_file.read(tmp_path / "key")


def test_a_secret_that_others_could_read_is_said_and_made_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"secret")
    file.chmod(0o644)
    assert private_file.read(file, is_secret=False) == b"secret"
    assert mode_of(file) == 0o644 and not caplog.records
    assert private_file.read(file) == b"secret"
    assert mode_of(file) == 0o600
    assert f"{file} could be read by others (mode 0644)" in caplog.text
    assert "secret'" not in caplog.text


def test_a_file_that_others_may_change_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"secret")
    file.chmod(0o620)
    with pytest.raises(ValueError, match=r"could be changed by others \(mode 0620\)"):
        private_file.read(file, is_secret=False)


@needs_root
def test_another_users_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"theirs")
    os.chown(file, OTHER_USER, OTHER_USER)
    with pytest.raises(ValueError, match=f"belongs to user {OTHER_USER}, neither to user 0 nor to root"):
        private_file.read(file)


@needs_root
def test_another_users_directory_is_not_written_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "identity"
    directory.mkdir()
    os.chown(directory, OTHER_USER, OTHER_USER)
    directory.chmod(0o777)
    caplog.set_level("INFO")
    assert load_or_make(directory, NAME).key_der
    assert list(directory.iterdir()) == []
    assert f"Key and CSR stay in memory: {directory}: it belongs to user {OTHER_USER}" in caplog.text


def test_what_another_user_prepared_is_not_taken_over(tmp_path: Path) -> None:
    """The draft used to be called `key.<pid>`, which any user could create beforehand and keep open."""
    prepared = tmp_path / f"key.{os.getpid()}"
    prepared.write_bytes(b"")
    prepared.chmod(0o666)
    made = load_or_make(tmp_path, NAME)
    assert prepared.read_bytes() == b""
    assert (tmp_path / "key.p8").read_bytes() == made.key_der
    assert (tmp_path / "key.p8").stat().st_ino != prepared.stat().st_ino
