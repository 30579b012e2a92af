"""`make recordings`: the terminals of docs/recordings anew, and the pictures that are taken of them.

`scriptreplay` (util-linux) plays one: scriptreplay --log-out NAME.typescript --log-timing NAME.timing
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from tests.recordings.recording import FOLDER, ROOT, SIZES, STORIES, Recording, record

_COMMAND: Final = f"SPONSON='{Path(sys.executable).parent.relative_to(ROOT)}/sponson' sh tests/recordings/%s.sh"


_LOG_COLUMNS: Final = 132


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in STORIES:
        for columns, lines in SIZES:
            record(FOLDER, name, _COMMAND % name, columns, lines)
    columns, lines = SIZES[0]
    demo = Recording.read(FOLDER, "demo", columns, lines)
    _draw(_taken_out(demo), "sponson demo --kill 6s", ROOT / "docs" / "demo-killed-replica.svg")
    log = Recording.read(FOLDER, "log", columns, lines)
    _draw(_whole(log), "sponson run", ROOT / "docs" / "log-on-a-terminal.svg")


def _taken_out(demo: Recording) -> list[Text]:
    """The screen on which a killed replica has been without requests for longest."""
    found: list[Text] = []
    for screen in demo.screens():
        if any("ago, out" in line for line in screen.display):
            found = _rows(screen)
    return found


def _whole(log: Recording) -> list[Text]:
    """All of it, on a wide terminal."""
    text = Text.from_ansi(log.written.decode().replace("\r", ""))
    rows = [line for line in text.split("\n", allow_blank=False) if line.plain.strip()]
    return [part for row in rows for part in row.divide(range(_LOG_COLUMNS, len(row.plain), _LOG_COLUMNS))]


def _rows(screen: Any) -> list[Text]:  # pyte has no types
    rows = []
    for y in range(screen.lines):
        row = Text()
        for x in range(screen.columns):
            cell = screen.buffer[y][x]
            colour = "" if cell.fg == "default" else {"brown": "yellow"}.get(cell.fg, cell.fg)
            row.append(cell.data, f"{colour} {'bold' if cell.bold else ''}".strip() or "default")
        row.rstrip()
        rows.append(row)
    while rows and not rows[-1].plain:
        rows.pop()
    return rows


def _draw(rows: list[Text], title: str, path: Path) -> None:
    width = max(len(row.plain) for row in rows)
    console = Console(record=True, width=width, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    for row in rows:
        console.print(row, no_wrap=True, crop=False, overflow="ignore")
    console.save_svg(str(path), title=title, unique_id=path.stem)


if __name__ == "__main__":
    main()
