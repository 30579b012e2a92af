"""Print a signed token that proves a service account."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from proxy.cli.mesh.arguments import DAY_S, account_of, add_account, add_state, duration_s
from proxy.mesh.identity.tokens import open_tokens
from proxy.mesh.state import State, StateError

FAILURES: Final = (StateError,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_account(parser)
    parser.add_argument("--ttl", type=duration_s, default=DAY_S, help="how long it is valid: 90s, 10m, 24h, 30d (24h)")
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    token = open_tokens(State(arguments.state_dir)).issue(account_of(arguments), time.time(), arguments.ttl)
    # Proxies send a token file as it is, and a line end in it is refused, as Linkerd refuses it: a file gets none.
    print(token, end="\n" if sys.stdout.isatty() else "")
    return 0
