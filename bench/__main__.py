"""`python -m bench`: the whole bench by one command (what `make bench` and `sponson bench` run)."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench import measure, report
from bench.footprint import FIGURES
from bench.peers import direct, envoy, haproxy, nghttpx, nginx, sponson
from bench.peers.candidate import Start
from bench.process import BenchError, need
from bench.workloads import WORKLOADS

RESULTS = Path(__file__).parent / "results"
BASELINE = RESULTS / "baseline.json"


def builds(given: list[str]) -> dict[str, sponson.Build]:
    """Our builds by label: the two of this checkout, and those that `--build LABEL=PROGRAM` adds or puts in their
    place.
    """
    found = {"sponson": sponson.INTERPRETED, "sponson_compiled": sponson.COMPILED}
    for one in given:
        label, mark, program = one.partition("=")
        if not mark or not re.fullmatch(r"[a-z0-9_]+", label) or not program:
            raise BenchError(f"--build takes LABEL=PROGRAM, the label of small letters, digits and _: {one}")
        found[label] = sponson.Build(label, Path(program).absolute(), "")
    return found


def peers(ours: dict[str, sponson.Build]) -> dict[str, Start]:
    return {
        "direct": direct.start,
        **{label: partial(sponson.start, build) for label, build in ours.items()},
        "haproxy": haproxy.start,
        "nginx": nginx.start,
        "nghttpx": nghttpx.start,
        "envoy": envoy.start,
    }


NOT_QUICK = ("nginx", "nghttpx", "envoy")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="sponson bench", description="CPU per request, latency and memory beside other proxies, in one run"
    )
    add_arguments(made)
    return made


def add_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--quick", action="store_true", help="the workloads of the budgets, direct, ours and HAProxy, two rounds"
    )
    made.add_argument("--json", action="store_true", help="print one JSON object on standard output at the end")
    made.add_argument("--only", default="", help="workloads and figures by name, comma-separated")
    made.add_argument("--peers", default="", help="candidates by name, comma-separated")
    made.add_argument(
        "--build",
        action="append",
        default=[],
        metavar="LABEL=PROGRAM",
        help="another build of ours: a `sponson` of another environment (`sponson`, `sponson_compiled` replace our own)",
    )
    made.add_argument("--rounds", type=int, default=0, help="rounds that count (3; 2 with --quick)")
    made.add_argument("--seconds", type=float, default=0.0, help="length of one run (3; 2 with --quick)")
    made.add_argument(
        "--save", default="", metavar="NAME", help="write results/NAME.json and .svg (`baseline` is the recorded one)"
    )


def plan(args: argparse.Namespace, ours: dict[str, sponson.Build]) -> measure.Plan:
    every = peers(ours)
    names = [name for name in args.peers.split(",") if name] or [
        name for name in every if not args.quick or name not in NOT_QUICK
    ]
    wanted = {name for name in args.only.split(",") if name}
    unknown = (set(names) - set(every)) | (wanted - {one.name for one in (*WORKLOADS, *FIGURES)})
    if unknown:
        raise BenchError(f"no such candidate or workload: {', '.join(sorted(unknown))}")
    workloads = [one for one in WORKLOADS if one.name in wanted or (not wanted and (one.is_quick or not args.quick))]
    figures = [one for one in FIGURES if one.name in wanted or (not wanted and not args.quick)]
    rounds = args.rounds or (2 if args.quick else 3)
    seconds = args.seconds or (2.0 if args.quick else 3.0)
    return measure.Plan(workloads, figures, {name: every[name] for name in names}, rounds, seconds)


def facts(ours: dict[str, sponson.Build], chosen: measure.Plan) -> dict[str, Any]:
    """The interpreter of each of our builds that ran. A build that was not there was left out of the run, with a line
    that says so.
    """
    found = {}
    for label, build in ours.items():
        if label in chosen.peers:
            with contextlib.suppress(BenchError):
                found[label] = build.facts()
    return found


def main(argv: list[str] | None = None) -> int:
    return run(parser().parse_args(argv))


def run(args: argparse.Namespace) -> int:
    """Run the bench. Returns the exit status; tables and remarks go to standard error, the JSON to standard output."""
    try:
        for program, package in (
            ("wrk", "wrk"),
            ("h2load", "nghttp2-client"),
            ("nginx", "nginx"),
            ("taskset", "util-linux"),
        ):
            need(program, package)
        ours = builds(args.build)
        chosen = plan(args, ours)
        started_at = time.monotonic()
        found = measure.run(chosen)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    report.show(found)
    measure.say(f"{time.monotonic() - started_at:.0f} s")
    if BASELINE.exists() and args.save != "baseline":
        for line in report.compare(found, json.loads(BASELINE.read_text())["workloads"]):
            measure.say(f"moved: {line}")
    whole = {"machine": {**report.machine(), "builds": facts(ours, chosen)}, "workloads": found}
    name = args.save or ("" if args.only or args.peers else "latest")
    if name:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")
        (RESULTS / f"{name}.svg").write_text(report.plot(found))
    if args.json:
        print(json.dumps(whole))
    return 0


if __name__ == "__main__":
    sys.exit(main())
