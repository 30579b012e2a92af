"""The arithmetic of `make coverage` and `make mutate`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.measure.mutants import drawn
from tests.measure.packages import by_package, table


def summary(statements: int, lines: int, branches: int = 0, taken: int = 0) -> dict[str, dict[str, int]]:
    counts = {
        "num_statements": statements,
        "covered_lines": lines,
        "num_branches": branches,
        "covered_branches": taken,
    }
    return {"summary": counts}


def test_lines_and_branches_count_alike_and_files_belong_to_their_package() -> None:
    found = by_package(
        {
            "proxy/http/h1/head.py": summary(10, 10, 10, 9),
            "/elsewhere/proxy/http/pool.py": summary(20, 20),
            "proxy/worker.py": summary(4, 1),
            "proxy/core/failure/reason.py": summary(0, 0),
        }
    )
    assert {name: round(one.percent, 1) for name, one in found.items()} == {"http": 97.5, "(top)": 25.0, "core": 100.0}
    assert [line.split("%")[1].strip() for line in table(found)] == ["", "data path", "data path"]
    low = by_package({"proxy/tls/peer.py": summary(100, 94)})
    assert table(low)[0].endswith("below")


@pytest.mark.parametrize("count", [10, 40])
def test_a_sample_has_each_package_by_its_share_and_is_the_same_for_a_seed(count: int) -> None:
    names = [f"proxy.{package}.x_{n}" for package, many in (("policy", 30), ("balance", 10)) for n in range(many)]
    sample = drawn(names, count, 7)
    assert sample == drawn(reversed(names), count, 7)
    assert len(set(sample)) == count
    assert sum(one.startswith("proxy.balance.") for one in sample) == pytest.approx(count / 4, abs=1)
    if count < len(names):
        assert sample != drawn(names, count, 8)


ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([a-z_0-9/]+\.py)` ((?:`[A-Za-z_.]+`(?: and )?)+)")


def test_every_function_that_a_mutant_survived_in_is_still_there() -> None:
    """docs/testing/survivors.md names them; a line whose function is gone says nothing any more. So it is with its tests."""
    text = (ROOT / "docs/testing/survivors.md").read_text().replace("\n", " ")
    named = [(path, name) for path, names in NAMED.findall(text) for name in re.findall(r"`([^`]+)`", names)]
    assert len(named) > 40
    for path, name in named:
        where: ast.AST = ast.parse((ROOT / "proxy" / path).read_text())
        for part in name.split("."):
            found = [
                one for one in ast.walk(where) if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == part
            ]
            assert found, f"{path} has no {name}"
            where = found[0]
    for path, name in re.findall(r"`([a-z_0-9/]+\.py)::(test_\w+)`", text):
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(), f"tests/{path} has no {name}"
