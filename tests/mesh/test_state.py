"""The state directory and its files: not used if they belong to another user, private from their first byte, never
reached through a link (B32).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy.mesh.state import State, StateError, read_secret, write_file


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_b32_a_directory_that_others_may_write_to_is_refused(mode: int, tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(StateError, match=f"mode {mode:04o} lets others write to it; chmod 700 it"):
        State(directory).create()


@pytest.mark.needs_root  # only root can make a directory of another user
def test_b32_another_users_directory_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    os.chown(directory, 12345, 12345)
    with pytest.raises(StateError, match="belongs to user 12345, not to user 0"):
        State(directory).create()


@pytest.mark.needs_root  # only root can make a file of another user
def test_b32_another_users_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ca.key"
    path.touch(mode=0o600)
    os.chown(path, 12345, 12345)
    with pytest.raises(StateError, match="belongs to user 12345"):
        read_secret(path)


def test_b32_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    target.chmod(0o600)
    state = State(tmp_path / "state")
    state.create()
    for name in ("ca.key", "lock", "issued.jsonl"):
        (state.directory / name).symlink_to(target)
    with pytest.raises(StateError, match="is a symbolic link"):
        state.read_secret("ca.key")
    with pytest.raises(StateError, match="lock"), state.locked():
        raise AssertionError("it was locked")
    with pytest.raises(StateError, match="issued"):
        state.append("issued.jsonl", b"line")
    state.write("ca.key", b"new")
    assert target.read_bytes() == b"precious"
    assert state.read_secret("ca.key") == b"new"


def test_a_pipe_instead_of_a_secret_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ca.key", 0o600)
    with pytest.raises(StateError, match="is no file"):
        read_secret(tmp_path / "ca.key")


def test_a_file_is_private_whatever_stood_there_and_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        write_file(path, b"new")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
