"""The size ceilings of docs/design.md: a file, class, function or signature that outgrows them is split by idea.

An exception is written down here, with its reason, or it does not exist; one that is no longer needed fails too.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "proxy"
FILE_LINES, CLASS_LINES, FUNCTION_LINES, PARAMETERS = 400, 350, 50, 6
FOLDER_MODULES = 10

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


def breaches(text: str, where: str) -> Iterator[tuple[str, str]]:
    """The parts of a source file that are too large, each with an error text."""
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


@cache
def found_in(path: Path) -> dict[str, str]:
    return dict(breaches(path.read_text(), str(path.relative_to(ROOT))))


def test_nothing_outgrows_its_ceiling() -> None:
    found = [text for path in sources() for key, text in found_in(path).items() if key not in EXCEPTIONS]
    assert not found, "\n".join(found)


def crowded(paths: Iterable[Path]) -> dict[Path, int]:
    """The folders with more modules than a reader can keep apart; a package's own `__init__.py` is not one."""
    count = Counter(path.parent for path in paths if path.name != "__init__.py")
    return {folder: modules for folder, modules in count.items() if modules > FOLDER_MODULES}


def test_no_folder_has_too_many_modules() -> None:
    assert not crowded(sources())
    many = [Path("a", f"m{number}.py") for number in range(FOLDER_MODULES)]
    assert not crowded([*many, Path("a", "__init__.py"), Path("a", "b", "c.py")])
    assert crowded([*many, Path("a", "one_more.py")]) == {Path("a"): FOLDER_MODULES + 1}


def unneeded(exceptions: Iterable[str], paths: Iterable[Path]) -> set[str]:
    return set(exceptions) - {key for path in paths for key in found_in(path)}


def test_every_exception_is_still_needed() -> None:
    assert unneeded(EXCEPTIONS, sources()) == set()
    assert unneeded(["proxy/__main__.py", "proxy/gone.py:Gone.run"], sources()) == {
        "proxy/__main__.py",
        "proxy/gone.py:Gone.run",
    }, "an exception that nothing needs is found"


def test_each_ceiling_is_seen_when_it_is_passed() -> None:
    """Each ceiling reports a file with one line more, or one parameter more, than is allowed."""
    method = ["    def long(self, a, b, c, d, e, f):", *["        a()"] * (FUNCTION_LINES - 1)]
    assert not list(breaches("\n".join(["class Fits:", *method]) + "\n", "x.py"))
    assert [key for key, _ in breaches("\n".join(["class A:", *method, "        a()"]), "x.py")] == ["x.py:A.long"]
    assert [key for key, _ in breaches("def many(a, b, c, d, e, *, f, g): ...", "x.py")] == ["x.py:many"]
    wide = "\n".join(["async def outer():", "    class Big:", *["        a = 1"] * CLASS_LINES])
    assert [key for key, _ in breaches(wide, "x.py")] == ["x.py:outer", "x.py:outer.Big"]
    assert [key for key, _ in breaches("a = 1\n" * (FILE_LINES + 1), "x.py")] == ["x.py"]
    assert not list(breaches("a = 1\n" * FILE_LINES, "x.py"))
