"""Apps that `sponson up` runs with a control plane: each has a file that its process holds locked.

An app is up for as long as its process holds the lock on its file, which the kernel releases however that process
ends. The file of one that was killed is removed by the next process that looks.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from proxy.core import limits
from proxy.core.small_file import read_small
from proxy.mesh.state import State, StateError, make_private

FOLDER: Final = "up"
_MAX_REPLICAS: Final = 1000


class App(NamedTuple):
    """One app with its sidecar."""

    name: str
    """The name of its service account and, if it serves, of its service."""
    namespace: str
    replica: int
    pid: int
    command: str
    port: int
    """Where the app listens; 0 if it serves nothing."""
    inbound: int
    outbound: int
    admin: int

    @property
    def workload(self) -> str:
        return f"{self.name}-{self.replica}"


class Seat:
    """The place of one replica of an app, held until `leave` or the end of the process."""

    __slots__ = ("replica", "_path", "_descriptor")

    def __init__(self, path: Path, replica: int, descriptor: int) -> None:
        self.replica: Final = replica
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, state: State, namespace: str, name: str) -> Self:
        """Take the first free seat of this name. StateError if there is none."""
        state.create()
        make_private(state.directory / FOLDER, state.directory)
        for replica in range(_MAX_REPLICAS):
            path = state.directory / FOLDER / f"{namespace}.{name}-{replica}.json"
            descriptor = _locked(path)
            if descriptor is not None:
                return cls(path, replica, descriptor)
        raise StateError(f"{state.directory / FOLDER}: {_MAX_REPLICAS} replicas of {name} are up already")

    def say(self, app: App) -> None:
        """Write down what others may know of the app."""
        data = json.dumps(app._asdict()).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def leave(self) -> None:
        """The app is gone. The file is removed before it is unlocked, so that no other app takes a file that is about to
        vanish."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def apps(state: State) -> list[App]:
    """The apps that are up, by namespace, name and replica."""
    found = []
    for path in sorted((state.directory / FOLDER).glob("*.json")):
        if not _is_held(path):
            continue
        with suppress(OSError, ValueError, TypeError):
            said: dict[str, Any] = json.loads(read_small(path, limits.RECORD_BYTES))
            found.append(App(**said))
    return found


def is_anybody_up(state: State) -> bool:
    """Whether an app is up, or about to be."""
    return any(_is_held(path) for path in (state.directory / FOLDER).glob("*.json"))


def _locked(path: Path) -> int | None:
    """A descriptor of the file with its lock; None if another process has the lock. StateError if the file cannot be
    made.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)  # its owner removed it between our two steps


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
