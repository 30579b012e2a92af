"""Revoke an identity, or one certificate: what was issued to it until now is no longer accepted.

The control plane refuses its tokens and certificates within a second or two, ends its connections, and publishes
crl.pem in the state directory, which the sidecars of this machine follow. Copy it to other machines for the sidecars there
(SPONSON_IDENTITY_REVOCATIONS_FILE), or keep the holder out by a policy until the certificate expires (24 h). A token that is made afterwards admits the identity again.
"""

from __future__ import annotations

import argparse
import re
import time
from typing import Final

from proxy.cli.mesh.arguments import add_state, dns_label, dns_name
from proxy.mesh.identity.revoked import revoke
from proxy.mesh.model import identity_of
from proxy.mesh.state import State, StateError

FAILURES: Final = (StateError,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--identity", type=dns_name, help="as certificates name it")
    who.add_argument("--service-account", type=dns_name, help="of --namespace")
    who.add_argument(
        "--serial", type=_serial, help="of one certificate, in hexadecimal, as the control plane's log has it"
    )
    parser.add_argument("--namespace", type=dns_label, default="default", help="(%(default)s)")
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    identity = arguments.identity or ""
    if arguments.service_account:
        identity = identity_of(arguments.service_account, arguments.namespace)
    revoke(State(arguments.state_dir), time.time(), identity, arguments.serial)
    return 0


def _serial(text: str) -> int:
    plain = text.replace(":", "")
    if not re.fullmatch(r"[0-9a-fA-F]{1,40}", plain):
        raise argparse.ArgumentTypeError(f"{text!r} is no serial number in hexadecimal")
    return int(plain, 16)
