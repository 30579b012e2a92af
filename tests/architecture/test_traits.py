"""mypyc lets no interpreted class inherit from a compiled trait, and mypy does not see it: it fails only where both meet."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
STREAM = ROOT / "proxy/http/stream.py"


def traits() -> set[str]:
    found = set()
    for path in (ROOT / "proxy").rglob("*.py"):
        if "trait" in path.read_text():
            for one in ast.walk(ast.parse(path.read_text())):
                if isinstance(one, ast.ClassDef) and any(
                    isinstance(mark, ast.Name) and mark.id == "trait" for mark in one.decorator_list
                ):
                    found.add(one.name)
    return found


def compiled(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    modules = runpy.run_path(str(ROOT / "setup.py"))["hot_modules"]()
    return {ROOT / path for path in modules}


def test_only_compiled_classes_inherit_from_traits(monkeypatch: pytest.MonkeyPatch) -> None:
    names = traits()
    assert "ServerStream" in names
    hot = compiled(monkeypatch)
    assert STREAM in hot
    wrong = []
    for folder in ("proxy", "tests", "bench"):
        for path in (ROOT / folder).rglob("*.py"):
            if path in hot:
                continue
            for one in ast.walk(ast.parse(path.read_text())):
                if isinstance(one, ast.ClassDef):
                    bases = {base.id for base in one.bases if isinstance(base, ast.Name)}
                    wrong += [f"{path.relative_to(ROOT)}: {one.name}({name})" for name in bases & names]
    assert not wrong, wrong
