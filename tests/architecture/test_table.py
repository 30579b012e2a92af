"""The files that docs/architecture.md tells to open exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"

_NAMED = re.compile(r"`([\w./-]+(?:\.py|/))`")


def missing(row: str) -> list[str]:
    """The files and folders of this row that do not exist. A name without a folder is in one that the row has named."""
    found = []
    folders = [ROOT / "proxy", ROOT]
    for name in _NAMED.findall(row):
        path = next((one / name for one in folders if (one / name).exists()), None)
        if path is None:
            found.append(name)
        else:
            folders.insert(0, path if path.is_dir() else path.parent)
    return found


def test_every_file_of_the_table_is_there() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert sum(len(_NAMED.findall(row)) for row in rows) > 100
    assert [name for row in rows for name in missing(row)] == []


def test_a_file_that_is_not_there_is_named() -> None:
    assert missing("| x | `http/h1/head.py`, `body.py`; `gone.py`, `http/none/`, `http/h2/gone.py` |") == [
        "gone.py",
        "http/none/",
        "http/h2/gone.py",
    ]
