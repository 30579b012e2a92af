"""The size ceilings of docs/design.md: a file, class, function or signature that outgrows them is split by idea.

An exception is written down here, with its reason, or it does not exist; one that is no longer needed fails too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "proxy"
FILE_LINES, CLASS_LINES, FUNCTION_LINES, PARAMETERS = 400, 350, 50, 6

EXCEPTIONS: dict[str, str] = {}
"""`path` or `path:Qualified.name` to the reason why it may be larger."""


def sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))]


def walk(
    node: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from walk(child, f"{name}.")
        else:
            yield from walk(child, prefix)


def breaches(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text()
    where = str(path.relative_to(ROOT))
    lines = text.count("\n")
    if lines > FILE_LINES:
        yield where, f"{where}: {lines} lines, {FILE_LINES} at most"
    for name, node in walk(ast.parse(text)):
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        ceiling = CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES
        key = f"{where}:{name}"
        if size > ceiling:
            yield key, f"{key}: {size} lines, {ceiling} at most"
        if not isinstance(node, ast.ClassDef):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            count = len([one for one in every if one.arg not in ("self", "cls")])
            if count > PARAMETERS:
                yield key, f"{key}: {count} parameters, {PARAMETERS} at most"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_outgrows_its_ceiling(path: Path) -> None:
    found = [text for key, text in breaches(path) if key not in EXCEPTIONS]
    assert not found, "\n".join(found)


def test_every_exception_is_still_needed() -> None:
    needed = {key for path in sources() for key, _ in breaches(path)}
    assert set(EXCEPTIONS) <= needed
