"""Files that others write: whatever stands there, reading it neither waits nor takes more than the bound; and nothing reads them otherwise."""

from __future__ import annotations

import ast
import os
import socket
from pathlib import Path

import pytest

from proxy.core.small_file import read_most, read_small
from proxy.tls.certificate import private_file
from proxy.tls.certificate.revoked import read_file

PACKAGE = Path(__file__).parents[2] / "proxy"


def test_a_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for size in (0, 1, 999, 1000):
        file.write_bytes(b"x" * size)
        assert read_small(file, 1000) == b"x" * size
    file.write_bytes(b"x" * 1001)
    with pytest.raises(OSError, match=r"it has more than 1000 octets: '.*/token'"):
        read_small(file, 1000)
    link = tmp_path / "link"
    link.symlink_to(file)
    assert len(read_small(link, 2000)) == 1001, "Kubernetes mounts secrets and tokens behind links"


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    for name, why in (
        ("fifo", "it is not a regular file: '.*/fifo'"),
        (".", "Is a directory"),
        ("missing", "No such file or directory"),
        ("socket", "No such device or address"),
    ):
        with pytest.raises(OSError, match=why):
            read_small(tmp_path / name, 1000)
    with pytest.raises(OSError, match="it is not a regular file: '/dev/zero'"):
        read_small("/dev/zero", 1000)
    with open("/dev/zero", "rb") as endless, pytest.raises(OSError, match="it has more than 1000 octets"):
        read_most(endless.fileno(), "/dev/zero", 1000)


def test_secrets_and_lists_are_bounded_too(tmp_path: Path) -> None:
    file = tmp_path / "key.p8"
    file.write_bytes(b"x" * (1 << 21))
    file.chmod(0o600)
    with pytest.raises(ValueError, match="it has more than 65536 octets"):
        private_file.read(file)
    with pytest.raises(OSError, match="it has more than 1048576 octets"):
        read_file(str(file))


BY_HAND = {
    "config/workers.py": "the kernel's files of the cgroup",
    "metrics/scraped/process.py": "the kernel's files of this process",
    "api/generate.py": "not part of a running proxy",
    "cli/demo/pods.py": "the handle of a network namespace",
    "cli/inject.py": "the operator's documents, which may come through a pipe and be of any size; nothing else runs in that process",
    "cli/run.py": "the operator's variables, which may come through a pipe; bounded by read_most",
    "cli/mesh/identity/join.py": "an invitation, which may come through a pipe; bounded by read_most",
    "cli/process/listening.py": "the kernel's tables of sockets",
    "cli/process/orphans.py": "the kernel's files of processes",
    "cli/process/child.py": "the log of a child of ours, of which the end is read",
    "redirect/firewall.py": "the kernel's settings of a network namespace",
}


@pytest.mark.skipif(not PACKAGE.exists(), reason="the sources are not beside these tests")
def test_every_other_file_is_read_here() -> None:
    """A file is opened for reading by `open`, `read_text` or `read_bytes` only where this list says why."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            is_method = isinstance(called, ast.Attribute) and (
                called.attr in ("read_text", "read_bytes")
                or (called.attr == "open" and bool(node.args) and isinstance(node.args[0], ast.Constant))
            )
            if is_method or (isinstance(called, ast.Name) and called.id == "open"):
                found.add(str(path.relative_to(PACKAGE)))
    assert found == set(BY_HAND)
