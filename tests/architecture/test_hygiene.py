"""Rules that no linter has: every module has a docstring, and hot packages make no tasks, queues or timers per
request.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [path for path in sorted((ROOT / "proxy").rglob("*.py")) if "_pb2" not in path.name]
HOT = ("core", "http", "policy", "balance", "metrics", "inbound", "outbound")
TYPED = ("inbound", "policy")
BANNED = {"create_task", "ensure_future", "Queue", "Future", "call_later", "run_in_executor"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in SOURCES}


def inside(packages: tuple[str, ...]) -> list[Path]:
    return [path for path in SOURCES if path.parts[len(ROOT.parts) + 1] in packages]


def test_a_module_says_what_it_is_for(trees: dict[Path, ast.Module]) -> None:
    assert len(SOURCES) > 400
    assert not [name_of(path) for path, tree in trees.items() if not (ast.get_docstring(tree) or "").strip()]


def test_hot_packages_make_no_task_queue_or_timer(trees: dict[Path, ast.Module]) -> None:
    found = []
    for path in inside(HOT):
        for node in ast.walk(trees[path]):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            is_clock = name == "time" and isinstance(node, ast.Attribute) and ast.unparse(node) == "time.time"
            if name in BANNED or (is_clock and "metrics" not in path.parts):
                found.append(f"{name_of(path)}:{node.lineno}: {name}")  # type: ignore[attr-defined]  # both have one
    assert not found


def test_expressions_of_others_are_compiled_by_policy_program_only(trees: dict[Path, ast.Module]) -> None:
    """Python's regex engine backtracks, so it may only get expressions that a module compiles when it is imported."""
    found = []
    for path, tree in trees.items():
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)):
            for node in ast.walk(function):
                if is_call_of_re(node) and not isinstance(node.args[0], ast.Constant):
                    found.append(f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}")
        if any(isinstance(node, ast.Import) and node.names[0].name == "re2" for node in ast.walk(tree)):
            assert name_of(path) == "proxy/policy/routes/program.py"
    assert not found


def is_call_of_re(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
    )


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


def test_a_type_that_is_not_known_has_its_reason_in_the_line() -> None:
    assert not [f"{name_of(path)}:{line}" for path in inside(TYPED) for line in untyped_lines(path.read_text())]


def test_a_type_without_a_reason_is_seen() -> None:
    text = 'from typing import Any\n\n"""Any of them."""\nx: Any = 1\ny: dict[str, Any] = {}  # of a library without types\n'
    assert untyped_lines(text) == [4]
