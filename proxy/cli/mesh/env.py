"""Print a workload's environment, or run a command with it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from typing import Final

from proxy.cli.mesh.arguments import DAY_S, account_of, add_account, add_state, an_addr, dns_name, duration_s, port
from proxy.core.address.addr import Addr
from proxy.mesh.claim import running
from proxy.mesh.environment import (
    TUNING,
    Ports,
    Workload,
    as_env_file,
    as_exports,
    free_ports,
    own_address,
    workload_environment,
)
from proxy.mesh.model import DEFAULT_INBOUND_PORT
from proxy.mesh.state import State, StateError

FAILURES: Final = (StateError,)

STARTS_S: Final = 10.0
"""How long to wait for a control plane that starts before its last address is used."""

_LOOK_S: Final = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_account(parser)
    parser.add_argument(
        "--workload", type=dns_name, help="the ExternalWorkload that it is (the service account's name)"
    )
    parser.add_argument("--addr", type=an_addr, help="where the control plane is (where `mesh serve` last served)")
    parser.add_argument("--ttl", type=duration_s, default=30 * DAY_S, help="how long its token is valid (30d)")
    parser.add_argument(
        "--inbound-port",
        type=port,
        help=f"({DEFAULT_INBOUND_PORT} with --workload, as manifests say, else a free one)",
    )
    for name in ("outbound", "admin", "tap"):
        parser.add_argument(f"--{name}-port", type=port, help="(a free one)")
    parser.add_argument(
        "--app-port", type=port, action="append", default=[], help="of the app, to ask for its policy early; repeatable"
    )
    parser.add_argument("--format", choices=("export", "env-file"), default="export", help="without a command")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="run with the environment")
    add_state(parser)


def over(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """A workload's variables over those that are set already; of variables that only tune, those that are set win."""
    return {**environ, **variables, **{name: environ[name] for name in TUNING if name in environ}}


def run(arguments: argparse.Namespace) -> int:
    state = State(arguments.state_dir)
    free = free_ports(4)
    ports = Ports(
        arguments.inbound_port or (DEFAULT_INBOUND_PORT if arguments.workload else free[0]),
        arguments.outbound_port or free[1],
        arguments.admin_port or free[2],
        arguments.tap_port or free[3],
    )
    account = account_of(arguments)
    command = command_of(arguments)
    server = arguments.addr or _remembered(state)
    app_ports = tuple(arguments.app_port)
    own_ip = own_address(server) if command else ""  # what is printed may be meant for another machine, or a container
    workload = Workload(account, arguments.workload or account.service_account, ports, arguments.ttl, app_ports, own_ip)
    variables = workload_environment(state, server, workload)
    if not command:
        print(as_env_file(variables) if arguments.format == "env-file" else as_exports(variables))
        return 0
    return become(command, variables)


def command_of(arguments: argparse.Namespace) -> list[str]:
    """What stands behind the options, without the `--` before it; empty if nothing does."""
    command: list[str] = arguments.command
    return command[1:] if command[:1] == ["--"] else command


def become(command: list[str], variables: Mapping[str, str]) -> int:
    """Run it in place of this process, with these variables over its own. Returns only if it cannot be run, with what a shell's exit
    status would be."""
    try:
        os.execvpe(command[0], command, over(os.environ, variables))
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


def _remembered(state: State) -> Addr:
    """The address of this directory's control plane; waits for one that is starting. If none runs, stderr says so."""
    now = running(state)
    end = time.monotonic() + STARTS_S
    while now is not None and now.addr is None and time.monotonic() < end:
        time.sleep(_LOOK_S)
        now = running(state)
    addr = state.serving_addr()
    if now is None or now.addr is None:
        what = "is still starting" if now is not None else "does not run"
        print(
            f"the control plane of {state.directory} {what}; taking {addr}, where it served last or would by default. "
            "Start it with `sponson mesh serve`, or say with --addr where it is.",
            file=sys.stderr,
        )
    return addr
