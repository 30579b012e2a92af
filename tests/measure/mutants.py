"""A sample of the mutants that mutmut makes, or all: `python -m tests.measure.mutants --seed 1 --count 400`.

mutmut writes a copy of the package with every mutant of the chosen folders beside its original, learns which tests
reach which function, and runs those against one mutant after the other. Drawn by seed, so that a run can be repeated;
as many of each package as its share of all. Names of survivors go to stdout: `mutmut show NAME` prints one.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable

NOTHING = "proxy.nothing.*"
"""A pattern that matches no mutant: mutmut makes them all, records which tests reach which function, and runs none."""


def results() -> dict[str, str]:
    """Every mutant's name and its result."""
    said = subprocess.run(["mutmut", "results", "--all", "true"], capture_output=True, text=True, check=True).stdout
    pairs = (line.strip().partition(": ") for line in said.splitlines())
    return {name: became for name, mark, became in pairs if mark}


def drawn(names: Iterable[str], count: int, seed: int) -> list[str]:
    """`count` names in random order, from each package in proportion to its share."""
    packages: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        packages[name.split(".")[1]].append(name)
    total = sum(len(one) for one in packages.values())
    dice = random.Random(seed)
    sample: list[str] = []
    for _, one in sorted(packages.items()):
        sample += sorted(dice.sample(one, min(len(one), max(1, round(len(one) * count / total)))))
    dice.shuffle(sample)
    return sample


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400, help="how many mutants; 0 for all")
    given = parser.parse_args(arguments)
    # It complains that nothing matches.
    nothing = ["mutmut", "run", "--max-children", "1", NOTHING]
    subprocess.run(nothing, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    names = list(results())
    sample = drawn(names, given.count or len(names), given.seed)
    print(f"{len(sample)} of {len(names)} mutants, seed {given.seed}", flush=True)
    subprocess.run(["mutmut", "run", "--max-children", "1", *sample], check=False, stdout=subprocess.DEVNULL)
    became = results()
    tally: Counter[tuple[str, str]] = Counter((name.split(".")[1], became[name]) for name in sample)
    for (package, end), count in sorted(tally.items()):
        print(f"{package:10} {end:12} {count:5}")
    print(
        "\n".join(sorted(name for name in sample if became[name] in ("survived", "no tests", "timeout", "suspicious")))
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
