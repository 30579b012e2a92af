"""A demo as a process of its own, and what it leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEADLINE_S = 60.0


@contextmanager
def demo(*arguments: str, temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """`sponson demo ARGUMENTS` with its files under `temporary`; killed at the end if it still runs."""
    command = [sys.executable, "-m", "proxy", "demo", *arguments]
    environment = {"TMPDIR": str(temporary), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """Exit status, the one JSON object on stdout, and stderr."""
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert output.count("\n") <= 1, output
    found: dict[str, Any] = json.loads(output or "{}")
    return process.returncode, found, errors


def children(pid: int) -> set[int]:
    """The living processes that a process has started."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(is_so: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    end = time.monotonic() + deadline_s
    while not is_so():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


def until_line(process: subprocess.Popen[str], text: str) -> str:
    """The first line of stderr that has `text`."""
    assert process.stderr is not None
    return next(line for line in process.stderr if text in line)
