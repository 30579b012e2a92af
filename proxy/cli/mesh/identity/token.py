"""Print a signed token that proves a service account."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from proxy.cli.mesh.arguments import DAY_S, account_of, add_account, add_state, an_address, dns_name, duration_s
from proxy.mesh.identity.tokens import Binding, open_tokens
from proxy.mesh.state import State, StateError

FAILURES: Final = (StateError,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_account(parser)
    parser.add_argument("--ttl", type=duration_s, default=DAY_S, help="how long it is valid: 90s, 10m, 24h, 30d (24h)")
    parser.add_argument("--workload", type=dns_name, help="the ExternalWorkload that it is for (any)")
    parser.add_argument(
        "--address",
        type=an_address,
        action="append",
        default=[],
        help="from where alone it may be shown; may be repeated",
    )
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    tokens = open_tokens(State(arguments.state_dir))
    binding = Binding(arguments.workload or "", tuple(arguments.address))
    token = tokens.issue(account_of(arguments), time.time(), arguments.ttl, binding)
    # Proxies send a token file as it is, and a line end in it is refused, as Linkerd refuses it: a file gets none.
    print(token, end="\n" if sys.stdout.isatty() else "")
    return 0
