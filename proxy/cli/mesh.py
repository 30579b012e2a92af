"""A control plane from a directory of manifests, and what a workload needs to join it.

sponson mesh serve --dir DIR
sponson mesh token --service-account web --namespace default
sponson mesh env   --service-account web --namespace default --workload web-0 -- sponson run
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import time
from pathlib import Path
from typing import Final

from proxy.core.addr import Addr, parse_addr
from proxy.mesh.environment import Ports, Workload, as_env_file, as_exports, free_ports, workload_environment
from proxy.mesh.manifests.load import ManifestErrors
from proxy.mesh.manifests.meta import is_dns_name
from proxy.mesh.model import DEFAULT_INBOUND_PORT, DEFAULT_POLICIES
from proxy.mesh.serve import ServeError, Settings
from proxy.mesh.serve import run as serve
from proxy.mesh.state import DEFAULT_ADDR, State, StateError, default_directory
from proxy.mesh.tokens import Account, open_tokens

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DAY_S: Final = 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="serve | token | env")
    _add_serve(actions.add_parser("serve", help="serve the control plane"))
    _add_token(actions.add_parser("token", help="print a signed token that proves a service account"))
    _add_env(actions.add_parser("env", help="print a workload's environment, or run a command with it"))


def run(arguments: argparse.Namespace) -> int:
    try:
        return int({"serve": _serve, "token": _token, "env": _env}[arguments.action](arguments))
    except (StateError, ServeError, ManifestErrors) as error:
        print(error, file=sys.stderr)
        return 1


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, required=True, help="the manifests: *.yaml and *.yml, watched for changes")
    parser.add_argument("--addr", type=_addr, default=DEFAULT_ADDR, help="ip:port, port 0 for a free one (%(default)s)")
    parser.add_argument(
        "--default-policy", choices=DEFAULT_POLICIES, default=DEFAULT_POLICIES[0], help="of inbound ports (%(default)s)"
    )
    _add_state(parser)


def _add_token(parser: argparse.ArgumentParser) -> None:
    _add_account(parser)
    parser.add_argument(
        "--ttl", type=_duration_s, default=_DAY_S, help="how long it is valid: 90s, 10m, 24h, 30d (24h)"
    )
    _add_state(parser)


def _add_env(parser: argparse.ArgumentParser) -> None:
    _add_account(parser)
    parser.add_argument(
        "--workload", type=_dns_name, help="the ExternalWorkload that it is (the service account's name)"
    )
    parser.add_argument("--addr", type=_addr, help="where the control plane is (where `mesh serve` last served)")
    parser.add_argument("--ttl", type=_duration_s, default=30 * _DAY_S, help="how long its token is valid (30d)")
    parser.add_argument(
        "--inbound-port",
        type=_port,
        help=f"({DEFAULT_INBOUND_PORT} with --workload, as manifests say, else a free one)",
    )
    for name in ("outbound", "admin", "tap"):
        parser.add_argument(f"--{name}-port", type=_port, help="(a free one)")
    parser.add_argument("--format", choices=("export", "env-file"), default="export", help="without a command")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="run with the environment")
    _add_state(parser)


def _add_account(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--service-account", type=_dns_name, required=True)
    parser.add_argument("--namespace", type=_dns_label, default="default", help="(%(default)s)")


def _add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=default_directory(),
        help="keys and trust anchors, made on first use (%(default)s)",
    )


def _serve(arguments: argparse.Namespace) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    serve(Settings(arguments.dir, State(arguments.state_dir), arguments.addr, arguments.default_policy))
    return 0


def _token(arguments: argparse.Namespace) -> int:
    token = open_tokens(State(arguments.state_dir)).issue(_account(arguments), time.time(), arguments.ttl)
    # Proxies send a token file as it is, and a line end in it is refused, as Linkerd refuses it: a file gets none.
    print(token, end="\n" if sys.stdout.isatty() else "")
    return 0


def _env(arguments: argparse.Namespace) -> int:
    state = State(arguments.state_dir)
    free = free_ports(4)
    ports = Ports(
        arguments.inbound_port or (DEFAULT_INBOUND_PORT if arguments.workload else free[0]),
        arguments.outbound_port or free[1],
        arguments.admin_port or free[2],
        arguments.tap_port or free[3],
    )
    account = _account(arguments)
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


def _account(arguments: argparse.Namespace) -> Account:
    return Account(arguments.service_account, arguments.namespace)


def _addr(text: str) -> Addr:
    try:
        return parse_addr(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _dns_name(text: str) -> str:
    if not is_dns_name(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no DNS name")
    return text


def _dns_label(text: str) -> str:
    """A namespace: with a dot in it, two accounts could be called the same."""
    if "." in text:
        raise argparse.ArgumentTypeError(f"{text!r} has a dot in it")
    return _dns_name(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def _duration_s(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if match is None or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s, 10m, 24h or 30d")
    return float(int(match[1]) * _UNIT_S[match[2]])
