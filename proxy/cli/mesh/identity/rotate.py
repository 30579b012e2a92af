"""Rotate the root in three steps: begin, switch, finish. Without a step: say which is next, and when it is safe."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from proxy.cli.mesh.arguments import add_state
from proxy.mesh.identity.authority import utc_now
from proxy.mesh.identity.root.rotation import Step, rotation_of, take
from proxy.mesh.state import State, StateError

FAILURES: Final = (StateError,)

_DONE: Final = {
    Step.BEGIN: "a second root is trusted beside the first",
    Step.SWITCH: "certificates are signed under the second root",
    Step.FINISH: "the first root is trusted no longer",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", nargs="?", choices=[str(step) for step in Step], help="the step to take")
    parser.add_argument("--now", action="store_true", help="take it although it is not safe yet")
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    state = State(arguments.state_dir)
    state.create()
    due = rotation_of(state)
    if arguments.step is None:
        when = "" if due.not_before is None else f", safe from {due.not_before:%Y-%m-%d %H:%M:%S} UTC"
        print(f"next: {due.next}{when}")
        return 0
    step = Step(arguments.step)
    if step is due.next and due.not_before is not None and utc_now() < due.not_before and not arguments.now:
        print(f"{step} is safe from {due.not_before:%Y-%m-%d %H:%M:%S} UTC (--now takes it at once)", file=sys.stderr)
        return 1
    take(state, step, utc_now())
    after = rotation_of(state)
    when = "" if after.not_before is None else f"; next: {after.next}, safe from {after.not_before:%Y-%m-%d %H:%M} UTC"
    print(f"{_DONE[step]}{when}")
    return 0
