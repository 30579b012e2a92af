"""Join a mesh whose control plane is on another machine: take an invitation, write what this workload's sidecar needs.

The directory then has sidecar.env, which systemd's EnvironmentFile= and docker's --env-file read, and the files that it
names. With a command after `--` that command is run with the environment.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from proxy.cli.mesh.arguments import duration_s, port
from proxy.cli.mesh.env import become, command_of
from proxy.cli.mesh.identity.joining import JoinError, join
from proxy.core import limits
from proxy.core.small_file import read_most
from proxy.mesh.environment import Ports
from proxy.mesh.identity.tokens import Account
from proxy.mesh.join.invitation import InvitationError, read_invitation
from proxy.mesh.join.place import ENV_FILE, Joined, Place
from proxy.mesh.state import StateError

FAILURES: Final = (StateError, InvitationError, JoinError)

_PORTS: Final = {"inbound": 4143, "outbound": 4140, "admin": 4191, "tap": 4190}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, required=True, help="the workload's own directory, made on first use")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--invitation", help="a file with an invitation, - for standard input")
    what.add_argument("--renew", action="store_true", help="exchange the token of one that has joined already")
    parser.add_argument(
        "--ttl", type=duration_s, default=0, help="how long its token is to hold (30d, which is the most)"
    )
    for name, number in _PORTS.items():
        parser.add_argument(f"--{name}-port", type=port, default=number, help="(%(default)s)")
    parser.add_argument(
        "--app-port", type=port, action="append", default=[], help="of the app, to ask for its policy early; repeatable"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="run with the environment")


def run(arguments: argparse.Namespace) -> int:
    place = Place(arguments.dir)
    if arguments.renew:
        joined = place.joined()
        answer = join(joined.server, place.trust_anchors(), place.token(), int(arguments.ttl))
        place.keep(answer.token, answer.trust_anchors)
        return 0
    invitation = read_invitation(_read(arguments.invitation))
    answer = join(invitation.server, invitation.trust_anchors, invitation.token.encode(), int(arguments.ttl))
    place.keep(answer.token, answer.trust_anchors)
    account = Account(answer.service_account, answer.namespace)
    joined = Joined(invitation.server, account, answer.workload or answer.service_account)
    ports = Ports(arguments.inbound_port, arguments.outbound_port, arguments.admin_port, arguments.tap_port)
    variables = place.settle(joined, ports, tuple(arguments.app_port))
    print(
        f"joined as {joined.workload} of {account.namespace}; {place.directory / ENV_FILE} is written", file=sys.stderr
    )
    command = command_of(arguments)
    return become(command, variables) if command else 0


def _read(source: str) -> str:
    try:
        with nullcontext(sys.stdin.buffer) if source == "-" else open(source, "rb") as file:  # a pipe will do
            return read_most(file.fileno(), source, limits.CERTIFICATES_BYTES).decode()
    except (OSError, ValueError) as error:
        raise InvitationError(f"{source}: {error}") from None
