"""Print a workload's environment, or run a command with it."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from proxy.cli.mesh.arguments import DAY_S, account_of, add_account, add_state, an_addr, dns_name, duration_s, port
from proxy.mesh.environment import Ports, Workload, as_env_file, as_exports, free_ports, workload_environment
from proxy.mesh.model import DEFAULT_INBOUND_PORT
from proxy.mesh.state import State, StateError

FAILURES: Final = (StateError,)


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
    parser.add_argument("--format", choices=("export", "env-file"), default="export", help="without a command")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="run with the environment")
    add_state(parser)


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
    workload = Workload(account, arguments.workload or account.service_account, ports, arguments.ttl)
    variables = workload_environment(state, arguments.addr or state.serving_addr(), workload)
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        print(as_env_file(variables) if arguments.format == "env-file" else as_exports(variables))
        return 0
    try:
        os.execvpe(command[0], command, {**os.environ, **variables})
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
