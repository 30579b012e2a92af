"""Which classes of the compiled build others may inherit from. mypy does not check that; it fails only when compiled
and interpreted classes meet.

mypyc lets an interpreted class inherit from a compiled one only if that has `allow_interpreted_subclasses`, and
never from a compiled trait.
"""

from __future__ import annotations

import ast
import runpy
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


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def classes(path: Path) -> dict[str, Found]:
    found = {}
    for one in tree(path).body:
        if isinstance(one, ast.ClassDef):
            marks = [ast.unparse(mark) for mark in one.decorator_list]
            bases = {ast.unparse(base).partition("[")[0] for base in one.bases}
            is_native = not bases & (_NOT_NATIVE - {"Generic"}) and not any("dataclass" in mark for mark in marks)
            is_open = any("allow_interpreted_subclasses" in mark for mark in marks)
            found[one.name] = Found(is_native, "trait" in marks, is_open)
    return found


def origin(path: Path, name: str) -> Path | None:
    """The file of ours that a name was imported from."""
    for one in ast.walk(tree(path)):
        if (
            isinstance(one, ast.ImportFrom)
            and one.module
            and any((each.asname or each.name) == name for each in one.names)
        ):
            found = ROOT / (one.module.replace(".", "/") + ".py")
            return found if found.exists() else None
    return path


def refused(hot: set[Path], path: Path) -> list[str]:
    wrong = []
    for one in ast.walk(tree(path)):
        for base in one.bases if isinstance(one, ast.ClassDef) else ():
            name = ast.unparse(base).partition("[")[0]
            where = origin(path, name)
            found = classes(where).get(name) if where in hot and where is not None else None
            if found is not None and found.is_native and (found.is_trait or not found.is_open):
                assert isinstance(one, ast.ClassDef)
                wrong.append(f"{path.relative_to(ROOT)}: {one.name}({name})")
    return wrong


@pytest.fixture
def hot(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The modules that are compiled."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    return {ROOT / path for path in runpy.run_path(str(ROOT / "setup.py"))["hot_modules"]()}


def test_interpreted_classes_inherit_from_what_allows_it(hot: set[Path]) -> None:
    assert classes(ROOT / "proxy/http/stream.py")["ServerStream"] == Found(True, True, True)
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
