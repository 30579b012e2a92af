"""A process under measurement: started on a core of its own, its CPU read in nanoseconds.

Whatever was started ends with the `Stable`, also after a failure or Ctrl-C.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PROXY_CPU, LOAD_CPU = 0, 1
_PR_SET_PDEATHSIG = 1


class BenchError(Exception):
    """The bench cannot go on; the text gives the reason and what to do."""


def need(program: str, package: str) -> str:
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        raise BenchError(f"{program} is not installed (Debian package {package})")
    return found


def has(program: str) -> bool:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is not None


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def _bind_to(cpu: int) -> None:
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {cpu % (os.cpu_count() or 1)})


class Ready(NamedTuple):
    """A cold start, from the first instruction until the process is useful."""

    start_ms: float
    cpu_ms: float
    rss_mb: float


class Process:
    def __init__(self, name: str, command: list[str], cpu: int, log: Path, env: dict[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self.started_at = time.monotonic()
        self.ready: Ready | None = None
        self._popen = subprocess.Popen(
            command,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: _bind_to(cpu),
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def became_ready(self) -> None:
        took_s = time.monotonic() - self.started_at
        self.ready = Ready(took_s * 1e3, self.cpu_ns() / 1e6, self.rss_bytes() / 1e6)

    def cpu_ns(self) -> int:
        total = 0
        for pid in self._tree():
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    with contextlib.suppress(OSError):
                        total += int((task / "schedstat").read_text().split()[0])
        return total

    def rss_bytes(self) -> int:
        total = 0
        for pid in self._tree():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmRSS"):
                        total += int(line.split()[1]) * 1024
        return total

    def _tree(self) -> list[int]:
        """The process and its workers (HAProxy, nginx and nghttpx fork)."""
        found = [self.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found += map(int, (task / "children").read_text().split())
        return found

    def stop(self) -> None:
        for sent in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, sent)
            try:
                self._popen.wait(3)
                return
            except subprocess.TimeoutExpired:
                continue


class Stable:
    """Everything that was started, and a folder for its files."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sponson-bench-"))
        self.processes: list[Process] = []

    def __enter__(self) -> Stable:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name: str, command: list[str], cpu: int = PROXY_CPU, env: dict[str, str] | None = None) -> Process:
        process = Process(name, command, cpu, self.folder / f"{name}.log", env)
        self.processes.append(process)
        return process


def wait_for_port(port: int, process: Process, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
            process.became_ready()
            return
        if not process.is_alive or time.monotonic() > deadline:
            tail = process.log.read_text(errors="replace")[-2000:]
            raise BenchError(f"{process.name} does not listen on {port}:\n{tail}")
        time.sleep(0.01)
