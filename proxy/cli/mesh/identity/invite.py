"""Print an invitation: one line by which a workload on another machine joins with `sponson mesh join`.

It holds the control plane's address, its trust anchors and a token, and is good until that token expires: carry it over
as you would a password.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

from proxy.cli.mesh.arguments import account_of, add_account, add_state, an_addr, an_address, dns_name, duration_s
from proxy.core import limits
from proxy.core.small_file import read_small
from proxy.mesh.claim import running
from proxy.mesh.identity.tokens import Binding, open_tokens
from proxy.mesh.join.invitation import Invitation
from proxy.mesh.state import State, StateError

FAILURES: Final = (StateError,)
_HOUR_S: Final = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_account(parser)
    parser.add_argument(
        "--workload", type=dns_name, help="the ExternalWorkload that it will be (the service account's name)"
    )
    parser.add_argument(
        "--address", type=an_address, action="append", default=[], help="from where alone it may join; may be repeated"
    )
    parser.add_argument("--ttl", type=duration_s, default=_HOUR_S, help="how long the invitation holds (1h)")
    parser.add_argument("--addr", type=an_addr, help="where the control plane is reached (where `mesh serve` serves)")
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    state = State(arguments.state_dir)
    now = running(state)
    if now is None:
        raise StateError(f"no control plane runs with {state.directory}: start it with `sponson mesh serve`")
    server = arguments.addr or state.serving_addr()
    account = account_of(arguments)
    binding = Binding(arguments.workload or account.service_account, tuple(arguments.address))
    token = open_tokens(state).issue(account, time.time(), arguments.ttl, binding)
    try:
        anchors = read_small(state.anchors_file, limits.CERTIFICATES_BYTES).decode()
    except OSError as error:
        raise StateError(f"{state.anchors_file}: {error.strerror}") from None
    print(Invitation(server, anchors, token).text())
    return 0
