"""State: the control plane's directory, with its keys, its trust anchors and the address that it serves at.

Law: made on first use, by one process at a time; a secret is 0600 from its
first byte, and one that others could read is refused. `sponson mesh token` and
`sponson mesh env` work on the same directory as the server.

    ca.key  ca.crt     the root (PEM); ca.crt is the trust anchor of every workload
    token.key          what workload tokens are signed with
    address            `ip:port` of the running server
    grpc.sock          where it is reached from inside, when its port is not on loopback
    workloads/NAMESPACE/ACCOUNT/NAME  token and key of a workload set up by `sponson mesh env`
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from stat import S_IMODE
from typing import Final

from proxy.core.addr import Addr, parse_addr

DEFAULT_ADDR: Final = Addr("127.0.0.1", 8086)


class StateError(Exception):
    """The state directory cannot be used; says which file and why."""


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

    def create(self) -> None:
        """Make the directory, for its owner alone; StateError if that cannot be."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"{self.directory}: {error.strerror}") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among processes: whoever comes second finds what the first has made."""
        self.create()
        descriptor = os.open(self.directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def read_secret(self, name: str) -> bytes | None:
        """A secret's bytes, None if there is none yet; StateError if others may read it."""
        path = self.directory / name
        try:
            mode = S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                raise StateError(f"{path}: mode {mode:04o} lets others read it; chmod 600 it or start anew")
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}") from None

    def write(self, name: str, data: bytes, mode: int = 0o600) -> Path:
        """Put a file in place whole: readers see the old one or the new one."""
        return write_file(self.directory / name, data, mode)

    def serving_addr(self) -> Addr:
        """Where the server last said that it serves, its default address if it never did.

        StateError if that is every address of the machine, of which workloads need one.
        """
        path = self.directory / "address"
        try:
            found = parse_addr(path.read_text().strip())
        except (FileNotFoundError, ValueError):
            return DEFAULT_ADDR
        if ip_address(found.ip).is_unspecified:
            raise StateError(f"{path}: the control plane serves at {found}: say with --addr which address to use")
        return found


def write_file(path: Path, data: bytes, mode: int = 0o600) -> Path:
    """Write beside and rename; StateError if that cannot be."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
        beside.rename(path)
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from None
    return path
