"""A type that is known is written down: each `Any` on the data path has its reason beside it.

`Any` is also what makes a compiled module slow, because it spreads to everything that is computed from it.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("http", "transport", "tls", "outbound", "inbound", "policy", "balance")
_SAYS_NOTHING = ("# noqa", "# fmt", "# type:")


def without_reason(source: str) -> list[int]:
    """The lines with an `Any` and no comment, neither in the line nor in the one before it; imports need none."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    said: set[int] = set()
    above: set[int] = set()
    named: set[int] = set()
    is_import = False
    for token in tokens:
        if token.type == tokenize.COMMENT:
            text = token.string
            for nothing in _SAYS_NOTHING:
                if text.startswith(nothing):
                    text = text.partition("  ")[2]  # what follows a comment for a tool, if anything does
            if text.strip("# "):
                (said if token.line[: token.start[1]].strip() else above).add(token.start[0])
        elif (
            token.type == tokenize.NAME
            and token.string in ("import", "from")
            and not token.line[: token.start[1]].strip()
        ):
            is_import = True
        elif token.type == tokenize.NEWLINE:
            is_import = False
        elif token.type == tokenize.NAME and token.string == "Any" and not is_import:
            named.add(token.start[0])
    return sorted(line for line in named if line not in said and line - 1 not in above)


@pytest.mark.parametrize("package", PACKAGES)
def test_any_has_its_reason(package: str) -> None:
    paths = sorted((ROOT / "proxy" / package).rglob("*.py"))
    assert paths
    found = [f"{path.relative_to(ROOT)}:{line}" for path in paths for line in without_reason(path.read_text())]
    assert not found, "\n".join(found)


def test_what_counts_as_a_reason() -> None:
    source = """from typing import (
    Any,
)
import x; y: Any = 1
a: Any = 1
b: Any = 2  # re2 has no types
# recursive
c: list[Any] = []
d: Any = 3  # noqa: E731
e: Any = 4  # noqa: E731  no name in common
def f(one: Any) -> None:
    "Any text may say Any"
"""
    assert without_reason(source) == [5, 9, 11]


def test_no_named_tuple_has_a_field_that_mypyc_cannot_make() -> None:
    """`object` and other builtins that mypyc has no type for are looked up when the compiled module is imported, which
    fails with KeyError.
    """
    found = [
        f"{path.relative_to(ROOT)}: {made.name}.{field.target.id}"
        for path in (ROOT / "proxy").rglob("*.py")
        for made in ast.walk(ast.parse(path.read_text()))
        if isinstance(made, ast.ClassDef) and any(ast.unparse(base) == "NamedTuple" for base in made.bases)
        for field in made.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and ast.unparse(field.annotation) in ("object", "type", "bytearray", "memoryview", "frozenset")
    ]
    assert not found
