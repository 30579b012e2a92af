"""Tables: columns under their names, aligned. In pipes plain text with nothing cut; on a terminal in colour, and wrapped to its width."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any, Final

from proxy.cli.help.parsers import is_terminal

_STYLES: Final = {"yes": "green", "no": "red", "-": "dim"}
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Each cell as text; an empty one is a dash."""
    if is_terminal():
        return _on_terminal(columns, [[cell(value) for value in row] for row in rows])
    cells = [[name.upper() for name in columns], *([cell(value) for value in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    return "\n".join(
        "   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _on_terminal(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold cyan")
    for name in columns:
        shown.add_column(name.upper(), overflow="fold")
    for row in rows:
        shown.add_row(*(Text(text, _STYLES.get(text, "")) for text in row))
    out = StringIO()
    console = Console()
    Console(file=out, force_terminal=True, width=console.width, color_system=_colours(console)).print(shown)
    return out.getvalue().rstrip("\n")


def _colours(console: Any) -> Any:
    """What the real terminal can show; none if NO_COLOR is set."""
    return None if console.no_color else (console.color_system or "standard")


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
