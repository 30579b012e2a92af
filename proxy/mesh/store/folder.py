"""Folder: which files of a directory are to be read, and when.

A file counts when it is no longer being written: no process has it open for writing (which a lease shows, where leases
are available), and it has been still for a moment or has been renamed into place. Only regular files, and links to them,
are looked at: opening a FIFO would wait for ever.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

SUFFIXES: Final = (".yaml", ".yml", ".json")

STILL_S: Final = 0.075
"""How long a file must not have changed."""

PATIENCE_S: Final = 5.0
"""How long to wait for a still file because a process has it open for writing."""


class Look(NamedTuple):
    """What is to be done."""

    read: tuple[str, ...]
    """Files that are to be read."""
    gone: tuple[str, ...]
    again_s: float | None
    """Look again after this time, because a file is not still yet."""
    odd: tuple[tuple[str, str], ...]
    """Names that are not regular files, and what they are."""


class _Trace(NamedTuple):
    """The attributes of a file that show a change."""

    device: int
    inode: int
    size: int
    modified_ns: int


class _Pending(NamedTuple):
    trace: _Trace
    since: float


class Folder:
    __slots__ = ("path", "_clock", "_wall", "_read", "_pending", "_odd", "_links", "_inode")

    def __init__(
        self, path: str, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self.path: Final = path
        self._clock = clock
        self._wall = wall
        self._read: dict[str, _Trace] = {}
        self._pending: dict[str, _Pending] = {}
        self._odd: dict[str, str] = {}
        self._links: set[str] = set()
        self._inode = 0

    @property
    def inode(self) -> int:
        """The inode of the directory when it was last listed."""
        return self._inode

    def look(self, names: Collection[str] | None = None) -> Look:
        """Look at all files, or at these and those that are not settled; OSError if the directory cannot be read."""
        listed = self._list() if names is None else None
        chosen = listed if listed is not None else {*filter(is_manifest, names or ()), *self._pending}
        read, gone = [], []
        again_s: float | None = None
        for name in sorted(chosen):
            found = self._look_at(name)
            if found is None:
                read.append(self._full(name))
            elif found > 0:
                again_s = found if again_s is None else min(again_s, found)
            elif found < 0 and self._read.pop(name, None) is not None:
                self._links.discard(name)
                gone.append(self._full(name))
        if listed is not None:
            for name in [name for name in self._read if name not in listed]:
                del self._read[name]
                self._links.discard(name)
                gone.append(self._full(name))
            self._odd = {name: what for name, what in self._odd.items() if name in listed}
            self._pending = {name: pending for name, pending in self._pending.items() if name in listed}
        return Look(
            tuple(read), tuple(gone), again_s, tuple((self._full(name), what) for name, what in self._odd.items())
        )

    @property
    def links(self) -> frozenset[str]:
        """Files that are links: a change behind them is not a change of this directory."""
        return frozenset(self._links)

    def _full(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _list(self) -> set[str]:
        inode = os.stat(self.path).st_ino
        names = {name for name in os.listdir(self.path) if is_manifest(name)}
        self._inode = inode
        return names

    def _look_at(self, name: str) -> float | None:
        """None: read it; 0: nothing to do; above 0: look again after so many seconds; below 0: it does not exist."""
        try:
            found = os.stat(self._full(name))
        except FileNotFoundError:
            self._pending.pop(name, None)
            if os.path.islink(self._full(name)):
                self._odd[name] = "a link that leads nowhere"
                return 0.0
            self._odd.pop(name, None)
            return -1.0
        except OSError as error:
            self._odd[name] = f"cannot be looked at: {error.strerror}"
            return 0.0
        if not stat.S_ISREG(found.st_mode):
            self._pending.pop(name, None)
            self._odd[name] = _WHAT.get(stat.S_IFMT(found.st_mode), "no regular file")
            return 0.0
        self._odd.pop(name, None)
        return self._settle(name, _Trace(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))

    def _settle(self, name: str, trace: _Trace) -> float | None:
        known = self._read.get(name)
        if trace == known:
            self._pending.pop(name, None)
            return 0.0
        now = self._clock()
        pending = self._pending.get(name)
        if pending is None or pending.trace != trace:
            pending = self._pending[name] = _Pending(trace, now)
        age_s = max(now - pending.since, self._wall() - trace.modified_ns / 1e9)
        is_renamed = known is not None and known.inode != trace.inode
        if age_s < STILL_S and not is_renamed:
            return STILL_S - age_s + 0.005
        if age_s < PATIENCE_S and _has_writer(self._full(name)):
            return STILL_S
        del self._pending[name]
        self._read[name] = trace
        if os.path.islink(self._full(name)):
            self._links.add(name)
        else:
            self._links.discard(name)
        return None


def is_manifest(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".")


_WHAT: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _has_writer(path: str) -> bool:
    """Whether a process has a file open for writing; False where that cannot be known.

    A read lease is granted only while there is no writer (fcntl(2)). Should one come while we hold it, the kernel
    sends a signal: SIGURG, which is ignored, instead of SIGIO, which would end the process.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(descriptor)
    return False
