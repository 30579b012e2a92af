"""Orphans: what a program that we started has left behind, so that it can be ended with it.

A shell that is ended does not end what it runs. The kernel then gives those processes to the nearest ancestor that asks for
them (prctl(2), PR_SET_CHILD_SUBREAPER). It says nothing when that ancestor is killed itself: then they stay.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_POLL_S: Final = 0.02

_libc: Final = ctypes.CDLL(None, use_errno=True)


def adopt() -> None:
    """Orphans of our descendants become children of this process from now on."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap(ours: Collection[int]) -> None:
    """Forget the children that have ended, but for those that somebody waits for."""
    with suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in ours:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)


def end_all(ours: Collection[int], wait_s: float) -> None:
    """End all children but ours, and what they leave behind in turn; kill those that have not ended after a while."""
    deadline = time.monotonic() + wait_s
    told: set[int] = set()
    while True:
        number = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        left = [pid for pid in _children() if pid not in ours]
        if not left:
            return
        for pid in left:
            if pid not in told or number == signal.SIGKILL:
                told.add(pid)
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if number == signal.SIGKILL and time.monotonic() > deadline + wait_s:
            return  # the kernel does not let them go
        time.sleep(_POLL_S)


def _children() -> list[int]:
    found = []
    me = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read(4096).rpartition(b")")[2].split()[1]) == me:
                    found.append(int(name))
    return found
