"""Claims a state directory for one control plane at a time, and shows other processes whether it still runs.

The running process holds a lock on the file, which the kernel releases however the process ends; the file has the
address at which it serves.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from proxy.core.address.addr import Addr, parse_addr
from proxy.mesh.state import State, StateError

_FILE: Final = "serving"
_RETRY_S: Final = 0.05
_TRIES: Final = 20
"""How often to try: another process that looks at the lock holds it for a moment, so that the first tries may fail."""


class Running(NamedTuple):
    """A control plane that runs now."""

    pid: int
    addr: Addr | None
    """None while it starts."""
    manifests: Path | None
    """The directory that it reads."""


class Claim:
    """Held for as long as a control plane runs."""

    __slots__ = ("_descriptor", "_manifests")

    def __init__(self, state: State, manifests: Path) -> None:
        """StateError if another one runs with this directory."""
        self._manifests = manifests.absolute()
        state.create()
        path = state.directory / _FILE
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}") from None
        for _ in range(_TRIES):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._say(None)
                return
            except BlockingIOError:
                time.sleep(_RETRY_S)
        os.close(self._descriptor)
        other = running(state)
        who = f"process {other.pid}" if other is not None else "another process"
        raise StateError(f"{state.directory}: {who} serves a control plane with it already")

    def serves_at(self, addr: Addr) -> None:
        self._say(addr)

    def release(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def _say(self, addr: Addr | None) -> None:
        addr_text = None if addr is None else str(addr)
        said = json.dumps({"pid": os.getpid(), "addr": addr_text, "manifests": str(self._manifests)}).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, said, 0)


def running(state: State) -> Running | None:
    """The control plane that runs with this directory now; None if none does."""
    try:
        descriptor = os.open(state.directory / _FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        pass
    finally:
        said = os.pread(descriptor, 4096, 0)
        os.close(descriptor)
    try:
        found = json.loads(said)
        addr = None if found["addr"] is None else parse_addr(found["addr"])
        return Running(int(found["pid"]), addr, Path(found["manifests"]))
    except (ValueError, KeyError, TypeError):
        return Running(0, None, None)  # it is writing this very moment
