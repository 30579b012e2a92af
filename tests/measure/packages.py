"""Branch coverage by package, from what `make coverage` has collected: `python -m tests.measure.packages [-v]`.

With `-v` the lines and branches that no test took are named too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from coverage import Coverage

DATA_PATH = (
    "core",
    "http",
    "transport",
    "tls",
    "inbound",
    "outbound",
    "balance",
    "policy",
    "metrics",
    "control",
    "admin",
    "config",
)
"""The packages that a request passes: each must reach WANTED_PERCENT, or docs/testing.md states why it does not."""
WANTED_PERCENT = 95.0


class Tally:
    """Statements and branches of some files."""

    def __init__(self) -> None:
        self.all = 0
        self.taken = 0

    def add(self, summary: dict[str, Any]) -> None:
        self.all += summary["num_statements"] + summary["num_branches"]
        self.taken += summary["covered_lines"] + summary["covered_branches"]

    @property
    def percent(self) -> float:
        return 100.0 * self.taken / self.all if self.all else 100.0


def by_package(files: dict[str, Any]) -> dict[str, Tally]:
    found: defaultdict[str, Tally] = defaultdict(Tally)
    for name, one in files.items():
        parts = Path(name).parts
        inner = parts[parts.index("proxy") + 1 :]
        found[inner[0] if len(inner) > 1 else "(top)"].add(one["summary"])
    return dict(found)


def collected() -> dict[str, Any]:
    """The files of the combined data, in the form of coverage's JSON report."""
    data = Coverage()
    data.load()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        data.json_report(outfile=str(path))
        files: dict[str, Any] = json.loads(path.read_text())["files"]
    return files


def table(tallies: dict[str, Tally]) -> list[str]:
    lines = []
    for name, tally in sorted(tallies.items()):
        mark = "" if name not in DATA_PATH else "  below" if tally.percent < WANTED_PERCENT else "  data path"
        lines.append(f"{name:12} {tally.all:7} {tally.percent:6.1f} %{mark}")
    return lines


def main(arguments: list[str]) -> int:
    files = collected()
    print(f"{'package':12} {'parts':>7} {'taken':>8}")
    print("\n".join(table(by_package(files))))
    if "-v" in arguments:
        for name, one in sorted(files.items()):
            missing = [*one["missing_lines"], *(f"{a}->{b}" for a, b in one["missing_branches"])]
            if missing:
                print(f"{name}: {', '.join(map(str, missing))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
