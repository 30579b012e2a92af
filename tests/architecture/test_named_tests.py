"""The tests that docs/testing.md names exist, and each row of its table names one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
ROWS = [*(f"B{number}" for number in range(1, 35)), "B45", "B46", "B55"]
"""The rows: those about work and memory, readings, ends, failures and permissions, and three more."""

_NAMED = re.compile(r"`([\w/]*test_\w+\.py)?(?:::(test_\w+…?))?`|`(test_\w+…?)`")
_ROW = re.compile(r"^\| (B\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


class Named(NamedTuple):
    file: str
    """The end of its path; empty if any file will do."""
    test: str
    """Empty for a whole file; a `…` at the end stands for the rest of the name."""


def named(text: str) -> list[Named]:
    """The tests that the text names, in order. One without a file in front of its `::` is in the file that was named
    last.
    """
    found: list[Named] = []
    file = ""
    for path, test, alone in _NAMED.findall(text):
        if path or test:
            file = path or file
            found.append(Named(file, test))
        elif alone:
            found.append(Named("", alone))
    return found


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@cache
def files() -> dict[str, set[str]]:
    """The tests of every file. Reading them takes seconds, which is not for workers that only collect."""
    return {f"/{path.relative_to(ROOT)}": names_in(path) for path in sorted(TESTS.rglob("test_*.py"))}


def exists(one: Named) -> bool:
    inside = [names for path, names in files().items() if path.endswith(f"/{one.file}") or not one.file]
    start = one.test.removesuffix("…")
    if start == one.test:
        return any(start in names or not start for names in inside)
    return any(name.startswith(start) for names in inside for name in names)


def test_every_test_that_is_named_exists() -> None:
    found = named((ROOT / "docs" / "testing.md").read_text())
    assert len(found) > 80, "the search finds nothing"
    assert not [one for one in found if not exists(one)]


def test_every_row_names_its_tests() -> None:
    rows = dict(_ROW.findall((ROOT / "docs" / "testing.md").read_text()))
    assert sorted(rows) == sorted(ROWS)
    assert not [row for row, cell in rows.items() if not named(cell) and cell != "the same"]


def test_what_is_missing_is_found() -> None:
    assert named("`a/test_b.py::test_c`, `::test_d`; `test_e_…`, `proxy`") == [
        Named("a/test_b.py", "test_c"),
        Named("a/test_b.py", "test_d"),
        Named("", "test_e_…"),
    ]
    here = "architecture/test_named_tests.py"
    for there in (Named(here, ""), Named(here, "test_every_row_names_its_tests"), Named("", "test_every_row_…")):
        assert exists(there)
    for gone in (
        Named(here, "test_every_row_"),
        Named("architecture/test_gone.py", ""),
        Named("", "test_every_row_goes_…"),
    ):
        assert not exists(gone)
