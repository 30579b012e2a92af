"""State: the control plane's directory, with its keys, its trust anchors and the address that it serves at.

Made on first use, by one process at a time. A secret is 0600 from its first byte; one that others can read, or that
is not a file of ours, is refused, and so is a directory that others own or may write to. Links are not followed.
`sponson mesh token` and `sponson mesh env` work on the same directory as the server.

    ca.crt             the trust anchors of every workload (PEM)
    ca.key             of the root among them, if it was made here
    issuer.pem         the certificate under it that signs those of workloads, with its key; issuer-previous.pem before it
    issued.jsonl       which certificates were signed;  revoked.json, crl.pem: which of them count no longer
    token.key          what workload tokens are signed with;  token.pub verifies them
    address            `ip:port` of the running server
    grpc.sock          where it is reached from inside, when its port is not on loopback
    workloads/NAMESPACE/ACCOUNT/NAME  token and key of a workload set up by `sponson mesh env`
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import Final

from proxy.core import limits
from proxy.core.address.addr import Addr, parse_addr
from proxy.core.small_file import read_most, read_small

_ADDRESS: Final = "address"
DEFAULT_ADDR: Final = Addr("127.0.0.1", 8086)


class StateError(Exception):
    """The state directory cannot be used; the text names the file and the reason."""


def default_directory() -> Path:
    """`$XDG_STATE_HOME/sponson`, else `~/.local/state/sponson`."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sponson"


class State:
    __slots__ = ("directory",)

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory.absolute()

    @property
    def anchors_file(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def revocations_file(self) -> Path:
        return self.directory / "crl.pem"

    def create(self) -> None:
        """Make the directory, for its owner alone; StateError if that fails, or if it belongs to others or they may
        write to it.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.directory.stat()
        except OSError as error:
            raise StateError(f"{self.directory}: {error.strerror}") from None
        if status.st_uid != os.geteuid():
            raise StateError(f"{self.directory}: belongs to user {status.st_uid}, not to user {os.geteuid()}")
        mode = S_IMODE(status.st_mode)
        if mode & 0o022:
            raise StateError(f"{self.directory}: mode {mode:04o} lets others write to it; chmod 700 it")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other processes: a second one finds what the first has made."""
        self.create()
        try:
            descriptor = os.open(self.directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StateError(f"{self.directory / 'lock'}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def read_secret(self, name: str) -> bytes | None:
        """A secret's bytes, None if it does not exist yet; StateError if it is not private to us."""
        return read_secret(self.directory / name)

    def append(self, name: str, line: bytes) -> None:
        """Add a line to a private file, whole or, with StateError, not at all: the next one must begin a line."""
        path = self.directory / name
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
            try:
                before = os.fstat(descriptor).st_size
                if os.write(descriptor, line) < len(line):
                    os.ftruncate(descriptor, before)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}") from None

    def write(self, name: str, data: bytes, mode: int = 0o600) -> Path:
        """Put a file in place whole: readers see the old one or the new one."""
        return write_file(self.directory / name, data, mode)

    def note_addr(self, addr: Addr) -> None:
        """Record the address at which the server serves."""
        self.write(_ADDRESS, f"{addr}\n".encode(), 0o644)

    def forget_addr(self) -> None:
        """Remove the record: the server will not be there again."""
        (self.directory / _ADDRESS).unlink(missing_ok=True)

    def serving_addr(self) -> Addr:
        """The address that the server recorded last; its default address if there is no record.

        StateError if that stands for every address of the machine, because workloads need one.
        """
        path = self.directory / _ADDRESS
        try:
            found = parse_addr(read_small(path, limits.RECORD_BYTES).decode().strip())
        except (FileNotFoundError, ValueError):
            return DEFAULT_ADDR
        if ip_address(found.ip).is_unspecified:
            raise StateError(f"{path}: the control plane serves at {found}: say with --addr which address to use")
        return found


def read_secret(path: Path) -> bytes | None:
    """A secret's bytes, None if the file does not exist; StateError if it is not a plain file, not ours, or readable
    by others.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise StateError(f"{path}: {reason}") from None
    with os.fdopen(descriptor, "rb"):
        status = os.fstat(descriptor)
        mode = S_IMODE(status.st_mode)
        if not S_ISREG(status.st_mode):
            raise StateError(f"{path}: is no file")
        if status.st_uid != os.geteuid():
            raise StateError(f"{path}: belongs to user {status.st_uid}, not to user {os.geteuid()}")
        if mode & 0o077:
            raise StateError(f"{path}: mode {mode:04o} lets others read it; chmod 600 it or start anew")
        try:
            return read_most(descriptor, path, limits.TOKEN_BYTES)
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}") from None


def make_private(directory: Path, below: Path) -> None:
    """Make `directory` and what is missing between it and `below`, for the owner alone; StateError if that fails."""
    try:
        for part in [*reversed(directory.relative_to(below).parents), directory.relative_to(below)]:
            (below / part).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StateError(f"{directory}: {error.strerror}") from None


def write_file(path: Path, data: bytes, mode: int = 0o600) -> Path:
    """Write to a new file with a name that cannot be guessed, and rename it; StateError if that fails."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(beside, flags, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                os.fchmod(descriptor, mode)
            beside.rename(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from None
    return path
