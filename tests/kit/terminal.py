"""A command of ours on a terminal of a given size: what it writes, and what a person would see of it."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping

from tests.kit.controlplane import DEADLINE_S, ROOT


class Terminal:
    """One end of a pseudo-terminal; the command has the other as its stdin, stdout, stderr and controlling terminal."""

    def __init__(self, *arguments: str, columns: int = 80, lines: int = 24, env: Mapping[str, str] = {}) -> None:
        self.written = b""
        self._near, far = os.openpty()
        self._stopped, self._stop = os.pipe()
        self.resize(columns, lines)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPONSON_", "LINKERD", "COLUMNS", "LINES"))
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LEADER, *arguments],
            stdin=far,
            stdout=far,
            stderr=far,
            cwd=ROOT,
            env={**inherited, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **env},
            start_new_session=True,
        )
        os.close(far)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns: int, lines: int) -> None:
        """Change the size; the kernel informs the command by SIGWINCH."""
        fcntl.ioctl(self._near, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._near, text.encode())

    def hang_up(self) -> None:
        """Close the terminal, as when its window is closed or its connection ends."""
        os.write(self._stop, b".")
        self._reader.join(DEADLINE_S)  # a read that is under way would keep the terminal
        os.close(self._near)

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """The command's exit status. Everything that it wrote has been read by then."""
        status = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        return status

    @property
    def text(self) -> str:
        return self.written.decode(errors="replace")

    def _read(self) -> None:
        while True:
            if self._stopped in select.select((self._near, self._stopped), (), ())[0]:
                return
            try:
                data = os.read(self._near, 65536)
            except OSError:  # EIO: the last who had the other end is gone
                return
            if not data:
                return
            self.written += data


_LEADER = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.argv[0] = "sponson"
from proxy.cli import main
main()
"""
"""The session's leader takes the terminal as its own, so that Ctrl-C and a hang-up reach it as signals."""


def on_terminal(*arguments: str, columns: int = 80, lines: int = 24, env: Mapping[str, str] = {}) -> str:
    """All that the command writes until it ends, run on a terminal of this size."""
    terminal = Terminal(*arguments, columns=columns, lines=lines, env=env)
    terminal.wait()
    return terminal.text
