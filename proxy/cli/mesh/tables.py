"""Tables for a terminal and for pipes: columns under their names, aligned, nothing cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Each cell as text; an empty one is a dash."""
    cells = [[name.upper() for name in columns], *([cell(value) for value in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    return "\n".join(
        "   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return str(value) if value not in (None, "") else "-"


def age(seconds: float) -> str:
    """In its largest unit: `3d`, `40s`."""
    whole = int(max(0.0, seconds))
    for size, unit in _UNITS:
        if whole >= size:
            return f"{whole // size}{unit}"
    return "0s"
