"""`python -m bench.balancing --save`: simulate, print a table, and write bench/results/balancing.json and .svg. Takes two minutes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.balancing.plot import svg
from bench.balancing.simulation import HANGS, Outcome, Scene, recovered_after_s, run_all

RESULTS = Path(__file__).parents[1] / "results"


def figures(outcome: Outcome, scene: Scene) -> dict[str, Any]:
    begin_s, end_s = scene.hang
    settled_s = scene.duration_s / 24
    """10 s of a whole scene."""
    in_its_middle = int((begin_s + end_s) / 2 / scene.window_s)
    return {
        "p99_s": round(outcome.p99_s(settled_s, begin_s), 4),
        "p99_while_it_hangs_s": round(outcome.p99_s(begin_s, end_s), 4),
        "p99_after_s": round(outcome.p99_s(end_s + settled_s), 4),
        "share_of_the_hung_one": round(outcome.shares[in_its_middle][HANGS], 4),
        "tenth_again_after_s": recovered_after_s(outcome, scene, 0.1),
        "third_again_after_s": recovered_after_s(outcome, scene, 0.3),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.balancing", description=__doc__)
    parser.add_argument("--rates", default="1,64,1000", help="requests a second")
    parser.add_argument("--save", action="store_true", help="write bench/results/balancing.json and .svg")
    given = parser.parse_args(arguments)
    scene = Scene(1.0)
    found = run_all([float(one) for one in given.rates.split(",")], scene)
    shown = {
        f"{rate:g}": {name: figures(outcome, scene) for name, outcome in outcomes.items()}
        for rate, outcomes in found.items()
    }
    sys.stdout.write(json.dumps(shown, indent=1) + "\n")
    if given.save:
        (RESULTS / "balancing.json").write_text(json.dumps(shown, indent=1) + "\n")
        (RESULTS / "balancing.svg").write_text(svg(found, scene))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
