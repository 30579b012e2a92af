"""Sponson's own commands as child processes: each in a session of its own, its output in a file.

Unless it is to outlive its parent, the kernel ends the child when the parent ends, even by SIGKILL.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import proxy

_PR_SET_PDEATHSIG: Final = 1
_STOP_S: Final = 5.0
_LAST_BYTES: Final = 65536
WHERE: Final = Path(proxy.__file__).parents[1]
"""The directory from which `-m proxy` is this very package, wherever the demo was started from."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


def dying_with_parent(number: signal.Signals, become: Callable[[], None] | None = None) -> Callable[[], None]:
    """For `preexec_fn`: the kernel sends this signal to the child when this process ends. `become` is called first."""
    parent = os.getpid()

    def ask() -> None:
        if become is not None:
            become()  # changing the group cancels the signal that was asked for
        _libc.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)

    return ask


class Child:
    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        outlives_parent: bool = False,
        become: Callable[[], None] | None = None,
    ) -> None:
        """Start `sponson ARGUMENTS`, its output in a file; `become` is what the child does before."""
        self.name: Final = name
        self._log = log
        prepare = None if outlives_parent else dying_with_parent(signal.SIGKILL, become)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "proxy", *arguments],
                env=environment,
                cwd=WHERE,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=prepare,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Signal its whole group, unless it has ended."""
        if not self.has_ended:
            os.killpg(self.pid, number)

    def wait(self, timeout_s: float) -> None:
        """Wait until it has ended, or the time is over."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def last_words(self) -> str:
        """How it ended, if it has, with the end of its output."""
        with self._log.open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
            text = log.read(_LAST_BYTES).decode(errors="replace").strip().splitlines()
        nothing = f"{self._log} has nothing from it; is that disk full?"
        how = f"ended with status {self._process.returncode}" if self.has_ended else "runs, and says"
        return "\n  ".join([f"{self.name}: {how}:", *(text[-8:] or [nothing])])


async def stop_all(children: Sequence[Child]) -> None:
    """Ask each child to end, and kill those that have not ended within a few seconds."""
    for child in children:
        child.signal(signal.SIGTERM)
    await asyncio.gather(*(asyncio.to_thread(child.wait, _STOP_S) for child in children))
    for child in children:
        child.signal(signal.SIGKILL)
        child.wait(_STOP_S)
