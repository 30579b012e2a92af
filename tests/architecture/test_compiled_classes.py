"""Which classes of the compiled build others may inherit from. mypy does not check that; it fails only when compiled
and interpreted classes meet.

mypyc lets an interpreted class inherit from a compiled one only if that has `allow_interpreted_subclasses`, and
never from a compiled trait.
"""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
_NOT_NATIVE = {"Protocol", "NamedTuple", "Exception", "ValueError", "OSError", "Generic"}
"""Bases of classes that mypyc compiles to ordinary Python classes, or that it does not restrict."""


class Found(NamedTuple):
    is_native: bool
    is_trait: bool
    is_open: bool


class Facts(NamedTuple):
    """What the test needs to know of a file, so that its syntax tree can be freed."""

    classes: dict[str, Found]
    """The classes that others can import."""
    inherits: list[tuple[str, str]]
    """Each class, wherever it is defined, with the name of each of its bases."""
    imports: dict[str, Path]
    """Each name that is imported from a file, and that file, which need not be ours."""


@cache
def facts(path: Path) -> Facts:
    module = ast.parse(path.read_text())
    found = Facts({one.name: judged(one) for one in module.body if isinstance(one, ast.ClassDef)}, [], {})
    for one in statements(module):
        if isinstance(one, ast.ClassDef):
            found.inherits.extend((one.name, ast.unparse(base).partition("[")[0]) for base in one.bases)
        elif isinstance(one, ast.ImportFrom) and one.module:
            origin = ROOT / (one.module.replace(".", "/") + ".py")
            found.imports.update({each.asname or each.name: origin for each in one.names})
    return found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes inside, except those within expressions, which define no class."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.stmt | ast.excepthandler | ast.match_case):
            yield one
            yield from statements(one)


def judged(one: ast.ClassDef) -> Found:
    marks = [ast.unparse(mark) for mark in one.decorator_list]
    bases = {ast.unparse(base).partition("[")[0] for base in one.bases}
    is_native = not bases & (_NOT_NATIVE - {"Generic"}) and not any("dataclass" in mark for mark in marks)
    return Found(is_native, "trait" in marks, any("allow_interpreted_subclasses" in mark for mark in marks))


def refused(hot: set[Path], path: Path) -> list[str]:
    wrong = []
    for name, base in facts(path).inherits:
        where = facts(path).imports.get(base, path)
        found = facts(where).classes.get(base) if where in hot else None
        if found is not None and found.is_native and (found.is_trait or not found.is_open):
            wrong.append(f"{path.relative_to(ROOT)}: {name}({base})")
    return wrong


@pytest.fixture
def hot(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The modules that are compiled."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    return {ROOT / path for path in runpy.run_path(str(ROOT / "setup.py"))["hot_modules"]()}


def test_interpreted_classes_inherit_from_what_allows_it(hot: set[Path]) -> None:
    assert facts(ROOT / "proxy/http/stream.py").classes["ServerStream"] == Found(True, True, True)
    wrong = []
    for folder in ("proxy", "tests", "bench"):
        for path in (ROOT / folder).rglob("*.py"):
            if path not in hot:
                wrong += refused(hot, path)
    assert not wrong, wrong


def test_what_is_refused_is_found(hot: set[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "proxy" / "some.py"
    module.parent.mkdir()
    text = "from proxy.http.stream import ServerEnd, ServerStream\nfrom proxy.http.exchange import Exchange\n"
    module.write_text(text + "class A(ServerEnd): ...\nclass B(ServerStream): ...\nclass C(Exchange): ...\n")
    monkeypatch.setattr("pathlib.Path.relative_to", lambda self, _: self.name)
    assert refused(hot, module) == ["some.py: B(ServerStream)", "some.py: C(Exchange)"]
