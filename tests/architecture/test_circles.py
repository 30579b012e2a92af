"""No module of ours imports itself through others, neither at run time nor for types alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """The modules of one circle, each imported by the next; empty if there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def imports() -> dict[str, set[str]]:
    """The modules of the product that each module of the product imports, wherever in its source."""
    paths = {name_of(path): path for path in (ROOT / "proxy").rglob("*.py")}
    return {name: imported(ast.parse(path.read_text()), name, paths) for name, path in paths.items()}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, name: str, known: Iterable[str]) -> set[str]:
    """The modules that `from package import name` may refer to: the module of that name, if there is one; otherwise
    the package's own file.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                found.add(whole if whole in known else node.module)
        elif isinstance(node, ast.Import):
            found.update(one.name for one in node.names)
    return {one for one in found if one in known and one != name}


def test_no_imports_go_in_a_circle() -> None:
    graph = imports()
    assert len(graph) > 300 and sum(map(len, graph.values())) > 1000, "imports are not seen"
    assert not circle(graph)


@pytest.mark.parametrize(
    "text",
    [
        "from proxy.b import thing",
        "import proxy.b",
        "from proxy import b",
        "if TYPE_CHECKING:\n    from proxy.b import thing",
        "def late():\n    from proxy.b import thing",
    ],
)
def test_a_circle_is_seen_however_it_is_closed(text: str) -> None:
    known = ("proxy", "proxy.a", "proxy.b", "proxy.c")
    graph = {
        "proxy.a": imported(ast.parse(text), "proxy.a", known),
        "proxy.b": imported(ast.parse("from proxy.c import thing"), "proxy.b", known),
        "proxy.c": imported(ast.parse("from proxy.a import thing"), "proxy.c", known),
    }
    assert set(circle(graph)) == {"proxy.a", "proxy.b", "proxy.c"}
    graph["proxy.c"] = set()
    assert not circle(graph)
