"""Run one app in a mesh: its sidecar, its manifest, and a control plane if none runs yet. Ctrl-C ends all of it.

The app finds its sidecar by $http_proxy, which most HTTP clients follow. `sponson mesh status` shows what is up.
The first app starts a control plane, later ones use it, and it ends with the last of them.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from pathlib import Path
from typing import Final

from proxy.cli.mesh.arguments import add_state, dns_label, port
from proxy.cli.process.loopback import check_loopback
from proxy.cli.up.app import UpError, Wanted, run_app
from proxy.mesh.state import State, StateError

_AUTO: Final = "auto"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "sponson up [--name NAME] [--port PORT] [options] -- COMMAND ..."
    parser.add_argument("--name", type=dns_label, help="of its service account and service (of the command)")
    parser.add_argument("--namespace", type=dns_label, default="default", help="(%(default)s)")
    parser.add_argument(
        "--port",
        type=_port_or_auto,
        default=0,
        help=f"where the app listens, or {_AUTO}; without it, it serves nothing",
    )
    parser.add_argument("--service-port", type=port, default=80, help="where others call it (%(default)s)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the app")
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        print("sponson up: say which app to run: sponson up -- COMMAND", file=sys.stderr)
        return 2
    check_loopback()
    name = arguments.name or _name_of(command[0])
    wanted = Wanted(name, arguments.namespace, arguments.port, arguments.service_port, tuple(command))
    try:
        return asyncio.run(run_app(State(arguments.state_dir), wanted))
    except (StateError, UpError) as error:
        print(f"sponson up: {error}", file=sys.stderr)
        return 1


def _name_of(program: str) -> str:
    """A DNS label that resembles the program's name."""
    found = re.sub(r"[^a-z0-9]+", "-", Path(program).name.lower()).strip("-")[:40]
    return found or "app"


def _port_or_auto(text: str) -> int | None:
    return None if text == _AUTO else port(text)
