"""The table of docs/architecture.md says of each exercise how many files it takes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "architecture.md"
ROWS = {
    "test_balancing.py": "which endpoint; another balancing policy",
    "test_ending.py": "why things end, and what each ending becomes; another reason",
    "test_metric_label.py": "a label that depends on each request",
    "test_observer.py": "what observes requests; another observer",
    "test_route_filter.py": "what a filter of a route does, or another filter",
    "test_variable.py": "what a variable means, its default or its error text; another variable",
}

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="an installed package has no documents here")


def files_of(exercise: str) -> int:
    """The most files that a test of this exercise asserts to have changed, by its `exercise.files == {…}`."""
    return max(
        len(node.comparators[0].elts)
        for node in ast.walk(ast.parse((HERE / exercise).read_text()))
        if isinstance(node, ast.Compare)
        and ast.unparse(node.left) == "exercise.files"
        and isinstance(node.comparators[0], ast.Set)
    )


@pytest.mark.parametrize("exercise", ROWS)
def test_the_row_of_an_exercise_says_how_many_files_it_takes(exercise: str) -> None:
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {ROWS[exercise]} |")]
    said = re.findall(r"\(exercise[^:)]*: (\d) files\)", row)
    assert said == [str(files_of(exercise))]


def test_every_exercise_has_its_row() -> None:
    assert set(ROWS) == {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
