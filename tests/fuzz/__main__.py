"""Long fuzzing: `python -m tests.fuzz [TARGET ...] [--seconds S] [--seed N] [--own]` (make fuzz ARGS=…).

Guided by coverage where atheris is installed, by the seeded generator of the suite alone where not, or with `--own`.
One line per target; an input that fails is written to build/fuzz, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import re
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final

from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

FINDS: Final = Path("build/fuzz")


def main(arguments: list[str]) -> int:
    by_name = {target.name: target for target in TARGETS}
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(by_name)}; all if none")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target (60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own", action="store_true", help="do without atheris")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.targets if name not in by_name]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}")
    is_guided = not given.own and importlib.util.find_spec("atheris") is not None
    FINDS.mkdir(parents=True, exist_ok=True)
    logging.getLogger("proxy").propagate = False
    sys.stdout.write(f"{'atheris' if is_guided else 'own generator'}, {given.seconds:g} s each\n")
    fails = 0
    for target in [by_name[name] for name in given.targets] or TARGETS:
        fuzz = guided if is_guided else unguided
        runs, complaint = fuzz(target, given.seconds, given.seed)
        sys.stdout.write(f"{target.name:17} {runs:9} runs  {complaint or 'fine'}\n")
        sys.stdout.flush()
        fails += bool(complaint)
    return 1 if fails else 0


def unguided(target: Target, seconds: float, seed: int) -> tuple[int, str]:
    """Run one target without coverage. Returns how many inputs were run, and what failed, or an empty text."""
    end = monotonic() + seconds
    runs = 0
    for data in target.inputs(seed):
        runs += 1
        try:
            target.check(data)
        except Exception as error:
            path = FINDS / f"{target.name}-{sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            return runs, f"FAILED, input in {path}: {type(error).__name__}: {str(error)[:500]}"
        if monotonic() > end:
            break
    return runs, ""


def guided(target: Target, seconds: float, seed: int) -> tuple[int, str]:
    """Run one target in a process of its own, because libFuzzer never returns."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, data in enumerate(target.corpus()):
            (corpus / str(number)).write_bytes(data)
        words = Path(folder) / "words"
        words.write_text("".join(f'"{"".join(f"{chr(92)}x{octet:02x}" for octet in one)}"\n' for one in target.tokens))
        command = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(corpus)]
        if target.tokens:  # libFuzzer takes an empty dictionary for an error
            command.append(f"-dict={words}")
        command += [
            f"-max_total_time={max(1, round(seconds))}",
            f"-seed={seed}",
            f"-artifact_prefix={FINDS}/{target.name}-",
        ]
        command += ["-max_len=20000", "-timeout=20", "-print_final_stats=1"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    runs = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
    find = re.search(r"Test unit written to (\S+)", done.stderr)
    complaint = ""
    if done.returncode:
        what = re.search(r"=== Uncaught Python exception: ===\n(.*)", done.stderr)
        where = f"input in {find[1]}: " if find else ""
        complaint = f"FAILED, {where}{what[1][:500] if what else done.stderr[-500:]}"
    return int(runs[1]) if runs else 0, complaint


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
