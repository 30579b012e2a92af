"""A file's text cut at its document marks, so that a document that did not change need not be parsed again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_MARK: Final = re.compile(r"^---(?=[ \t\n]|$)", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^%", re.MULTILINE)
_BOM: Final = "\ufeff"


class Chunk(NamedTuple):
    line: int
    """The line of the file, counted from 1, at which the chunk begins."""
    text: str


def decode(data: bytes) -> str:
    """A file's text with line feeds as line ends; UnicodeDecodeError if it is neither UTF-8 nor marked as UTF-16."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def chunks(text: str) -> Iterator[Chunk]:
    """The parts of a text that begin with a line `---`, and what comes before the first.

    No scalar may contain such a line (YAML 1.2.2 section 9.1.2). A text with directives (`%YAML`), which belong to
    the document after them, stays whole. A byte order mark at the beginning of a document is not content.
    """
    starts = [0]
    if _DIRECTIVE.search(text) is None:
        starts += [match.start() for match in _MARK.finditer(text) if match.start() > 0]
    line = 1
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        part = text[start:end]
        lines = part.count("\n")
        if _BOM in part:
            part = _without_bom(part)
        yield Chunk(line, part)
        line += lines


def _without_bom(part: str) -> str:
    return part.removeprefix(_BOM).replace(f"---\n{_BOM}", "---\n", 1)
