"""Rules that no linter has: every module has a docstring, and hot packages make no tasks, queues or timers per
request.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [path for path in sorted((ROOT / "proxy").rglob("*.py")) if "_pb2" not in path.name]
HOT = ("core", "http", "policy", "balance", "metrics", "inbound", "outbound")
TYPED = ("inbound", "policy")
BANNED = {"create_task", "ensure_future", "Queue", "Future", "call_later", "run_in_executor"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert (ast.get_docstring(ast.parse(path.read_text())) or "").strip(), f"{name_of(path)} has no docstring"


@pytest.mark.parametrize("path", [path for path in SOURCES if path.parts[len(ROOT.parts) + 1] in HOT], ids=name_of)
def test_hot_packages_make_no_task_queue_or_timer(path: Path) -> None:
    tree = ast.parse(path.read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not used & BANNED
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert "time.time" not in calls or "metrics" in path.parts


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_expressions_of_others_are_compiled_by_policy_pattern_only(path: Path) -> None:
    """Python's regex engine backtracks, so it may only get expressions that a module compiles when it is imported."""
    tree = ast.parse(path.read_text())
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)):
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
                assert isinstance(node.args[0], ast.Constant), f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"
    if any(isinstance(node, ast.Import) and node.names[0].name == "re2" for node in ast.walk(tree)):
        assert name_of(path) == "proxy/policy/pattern.py"


def untyped_lines(text: str) -> list[int]:
    """The lines with an `Any`, except its import, that have no comment with the reason."""
    said: set[int] = set()
    excused: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or token.line.startswith("from typing import "):
            excused.add(token.start[0])
        elif token.type == tokenize.NAME and token.string == "Any":
            said.add(token.start[0])
    return sorted(said - excused)


@pytest.mark.parametrize("path", [path for path in SOURCES if path.parts[len(ROOT.parts) + 1] in TYPED], ids=name_of)
def test_a_type_that_is_not_known_has_its_reason_in_the_line(path: Path) -> None:
    assert untyped_lines(path.read_text()) == []


def test_a_type_without_a_reason_is_seen() -> None:
    text = 'from typing import Any\n\n"""Any of them."""\nx: Any = 1\ny: dict[str, Any] = {}  # of a library without types\n'
    assert untyped_lines(text) == [4]
