"""The demo on real terminals: what a person sees at 80x24 and 50x20, while one shrinks, and what remains when one
goes.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyte

from tests.demo.kit import children, is_alive, until
from tests.kit.terminal import Terminal

DEADLINE_S = 90.0


class Seen:
    """A terminal with a demo, and the screen that results from its bytes."""

    def __init__(self, temporary: Path, *arguments: str, columns: int, lines: int) -> None:
        env = {"TMPDIR": str(temporary), "LANG": "C.UTF-8"}
        self.terminal = Terminal("demo", "--rps", "60", *arguments, columns=columns, lines=lines, env=env)
        self._size = (columns, lines)
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._fed = 0

    @property
    def lines(self) -> list[str]:
        written = self.terminal.written
        self._stream.feed(written[self._fed :])
        self._fed = len(written)
        return [line.rstrip() for line in self._screen.display]

    def resize(self, columns: int, lines: int) -> None:
        assert self.lines
        self._screen.resize(lines, columns)
        self.terminal.resize(columns, lines)

    def until(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        end = time.monotonic() + DEADLINE_S
        while not is_so(lines := self.lines):
            assert time.monotonic() < end and self.terminal.process.poll() is None, "\n".join(lines)
            time.sleep(0.05)
        return lines


def row(lines: list[str], name: str) -> str:
    return next((line for line in lines if line.startswith(name)), "")


def is_busy(lines: list[str]) -> bool:
    """Whether the live view shows traffic to each of the replicas."""
    return (
        bool(lines)
        and "Ctrl-C ends it" in lines
        and all(re.search(r"[1-9]\d* +\d+%", row(lines, f"web-{n}")) for n in range(3))
    )


def test_it_fits_also_when_it_shrinks_and_ends_as_it_found_the_terminal(tmp_path: Path) -> None:
    seen = Seen(tmp_path, columns=80, lines=24)
    shown = seen.until(is_busy)
    seen.until(lambda lines: "mutual TLS  yes" in lines)
    assert row(shown, "name")
    seen.resize(50, 20)
    shown = seen.until(lambda lines: is_busy(lines) and len(lines) == 20)
    assert row(shown, "name") and "mutual TLS  yes" in shown
    assert sum(line.startswith("web-0") for line in shown) == 1
    assert shown.count("Ctrl-C ends it") == 1
    seen.terminal.type("\x03")
    assert seen.terminal.wait(DEADLINE_S) == 0
    assert b"\x1b[?1049h" in seen.terminal.written and seen.terminal.written.rstrip().endswith(b" ms")
    assert seen.terminal.written.count(b"\x1b[?1049l") == 1, "the screen of its own is left"
    assert "Traceback" not in seen.terminal.text
    assert list(tmp_path.iterdir()) == []


def test_a_killed_replica_is_seen_taken_out_and_coming_back(tmp_path: Path) -> None:
    seen = Seen(tmp_path, "--kill", "2s", columns=80, lines=24)
    seen.until(lambda lines: "killed" in row(lines, "web-0") and "out" in row(lines, "web-0"))
    seen.until(lambda lines: "is back" in row(lines, "web-0"))
    seen.until(lambda lines: is_busy(lines))
    seen.terminal.type("\x03")
    assert seen.terminal.wait(DEADLINE_S) == 0
    assert list(tmp_path.iterdir()) == []


def test_it_ends_with_its_terminal_and_leaves_nothing(tmp_path: Path) -> None:
    seen = Seen(tmp_path, columns=80, lines=24)
    seen.until(is_busy)
    pids = children(seen.terminal.process.pid)
    assert len(pids) == 5
    seen.terminal.hang_up()
    seen.terminal.process.wait(DEADLINE_S)
    until(lambda: not any(map(is_alive, pids)))
    assert list(tmp_path.iterdir()) == []


def test_sighup_ends_it_even_where_its_terminal_stays(tmp_path: Path) -> None:
    seen = Seen(tmp_path, columns=80, lines=24)
    seen.until(is_busy)
    seen.terminal.process.send_signal(signal.SIGHUP)
    assert seen.terminal.wait(DEADLINE_S) == 0
    assert list(tmp_path.iterdir()) == []


def test_files_are_kept_and_explained(tmp_path: Path) -> None:
    seen = Seen(tmp_path, "--explain", "--keep", "--duration", "2s", columns=120, lines=50)
    assert seen.terminal.wait(DEADLINE_S) == 0
    (kept,) = tmp_path.iterdir()
    text = seen.terminal.text
    assert f"kept: {kept}" in text and f"{kept}/manifests/mesh.yaml" in text
    assert (kept / "manifests" / "mesh.yaml").is_file()
    assert "Certified identity" in (kept / "web-0.log").read_text()
