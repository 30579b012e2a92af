"""Fits prose to a terminal's width, between words, and keeps the columns of lists.

A terminal would break a long line within a word, and begin the rest at its left edge. Command lines to copy stay whole.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import Final

_ITEM: Final = re.compile(r"(\s*\S+(?: \S+)*\s{2,})\S")
"""What stands before the second column: `  name   what it is`."""

_TO_COPY: Final = re.compile(r"\s*(?:sponson|curl|nsenter) ")
_MARGIN: Final = 2
"""As argparse leaves it."""

_LEAST_COLUMNS: Final = 20


def for_terminal(text: str) -> str:
    """The text as it fits the terminal that stdout is; unchanged where it is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return text
    return fitted(text, shutil.get_terminal_size().columns)


def fitted(text: str, columns: int) -> str:
    width = max(_LEAST_COLUMNS, columns - _MARGIN)
    return "\n".join(_line(line, width) for line in text.split("\n"))


def _line(line: str, width: int) -> str:
    if len(line) <= width or _TO_COPY.match(line):
        return line
    item = _ITEM.match(line)
    own = len(line) - len(line.lstrip())
    indent = len(item[1]) if item is not None else own
    if indent > width // 2:
        indent = own + 2
    return textwrap.fill(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
