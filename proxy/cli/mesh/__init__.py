"""A control plane from a directory of manifests, and what a workload needs to join it."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from proxy.cli.commands import loaded, module_of
from proxy.cli.help.parsers import parser_of

ACTIONS: Final = {
    "serve": "serve the control plane",
    "token": "print a signed token that proves a service account",
    "env": "print a workload's environment, or run a command with it",
    "invite": "print one line by which a workload on another machine joins",
    "join": "take an invitation, and write what this machine's sidecar needs",
    "status": "show whether a control plane runs, and what is up",
    "get": "show services, endpoints, workloads, policies or routes as the control plane knows them",
    "describe": "show what is known of one object, and which sidecars watch it",
    "validate": "check manifests, for CI: what is wrong, by file and line",
    "schema": "print the manifests' JSON Schema, for editors",
    "revoke": "no longer accept what was issued to an identity",
    "rotate": "replace the root, step by step",
}
"""Each is a file of this folder or of one of its rooms, imported when it is asked for: `add_arguments(parser)`, `run(arguments) -> int`, and
`FAILURES`, the exceptions whose text is all that a person needs to read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "sponson mesh ACTION ..."
    width = max(map(len, ACTIONS))
    actions = "actions:\n" + "\n".join(f"  {name:<{width}}  {help_}" for name, help_ in ACTIONS.items())
    parser.epilog = f"{actions}\n\n{parser.epilog}"
    parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help="one of those below")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    action = loaded(module_of(["mesh", arguments.action]))
    parser = parser_of(f"mesh {arguments.action}", action.__doc__, arguments.rest)
    action.add_arguments(parser)
    asked = parser.parse_args(arguments.rest)
    try:
        return int(action.run(asked))
    except action.FAILURES as error:
        print(error, file=sys.stderr)
        return 1
