"""A recording of `script` (util-linux): what a terminal was written, and when."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

import pyte

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "recordings"
STORIES: Final = ("demo", "help", "log")
SIZES: Final = ((80, 24), (50, 20))

_OUTPUT: Final = "O"
_OWN_SCREEN: Final = re.compile(rb"\x1b\[\?1049h.*?\x1b\[\?1049l", re.DOTALL)
_OF_THIS_MACHINE: Final = re.compile(r"H \S+ (TIMING_LOG|OUTPUT_LOG) ")
"""What `script` notes of its own files, which nobody needs to play them."""
_CONTROL: Final = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Recording(NamedTuple):
    columns: int
    lines: int
    pieces: tuple[tuple[float, bytes], ...]
    """Seconds after the one before, and what was written then."""

    @classmethod
    def read(cls, folder: Path, name: str, columns: int, lines: int) -> Self:
        written = (folder / f"{name}-{columns}x{lines}.typescript").read_bytes()
        timing = (folder / f"{name}-{columns}x{lines}.timing").read_text()
        written = written.partition(b"\n")[2]  # script's own first line
        pieces, at = [], 0
        for line in timing.splitlines():
            kind, delay_s, rest = line.split(" ", 2)
            if kind == _OUTPUT:
                end = at + int(rest)
                pieces.append((float(delay_s), written[at:end]))
                at = end
        return cls(columns, lines, tuple(pieces))

    @property
    def written(self) -> bytes:
        return b"".join(data for _, data in self.pieces)

    @property
    def scrolled(self) -> list[str]:
        """The lines outside of a screen of its own, as they were written, without colours."""
        plain = _CONTROL.sub(b"", _OWN_SCREEN.sub(b"", self.written))
        return plain.decode().split("\n")

    def screens(self) -> Iterator[pyte.Screen]:
        """The one screen, after each piece."""
        screen = pyte.Screen(self.columns, self.lines)
        stream = pyte.ByteStream(screen)
        for _, data in self.pieces:
            stream.feed(data)
            yield screen


def record(folder: Path, name: str, command: str, columns: int, lines: int) -> None:
    """Run a shell's command on a terminal of this size, and keep what it writes as NAME-COLUMNSxLINES.typescript and .timing."""
    base = folder / f"{name}-{columns}x{lines}"
    subprocess.run(
        [
            "script", "--quiet", "--return", "--log-out", f"{base}.typescript", "--log-timing", f"{base}.timing",
            "--logging-format", "advanced", "--command", f"stty cols {columns} rows {lines}; {command}",
        ],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=180,
        env={"PATH": os.environ["PATH"], "HOME": "/home/you", "LANG": "C.UTF-8", "TERM": "xterm-256color"},
    )  # fmt: skip
    timing = Path(f"{base}.timing")
    lines_of_timing = timing.read_text().splitlines(keepends=True)
    timing.write_text("".join(line for line in lines_of_timing if not _OF_THIS_MACHINE.match(line)))
