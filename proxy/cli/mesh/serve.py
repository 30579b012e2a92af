"""Serve identity, destination and policy from a directory of manifests, which is watched for changes."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from proxy.cli import logs
from proxy.cli.mesh.arguments import add_state, an_addr, networks
from proxy.cli.process.loopback import check_loopback
from proxy.mesh.identity.root.issuers import Brought
from proxy.mesh.model import DEFAULT_POLICIES
from proxy.mesh.serve import ServeError, Settings
from proxy.mesh.serve import run as serve
from proxy.mesh.state import DEFAULT_ADDR, State, StateError
from proxy.mesh.store.manifests import ManifestErrors, Rules

FAILURES: Final = (StateError, ServeError, ManifestErrors)

_FILTER: Final = "warn,linkerd=info,sponson=info,hickory=error"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, required=True, help="the manifests: *.yaml, *.yml and *.json, watched for changes"
    )
    parser.add_argument(
        "--addr", type=an_addr, default=DEFAULT_ADDR, help="ip:port, port 0 for a free one (%(default)s)"
    )
    parser.add_argument(
        "--default-policy", choices=DEFAULT_POLICIES, default=DEFAULT_POLICIES[0], help="of inbound ports (%(default)s)"
    )
    parser.add_argument(
        "--probe-networks",
        type=networks,
        default=(),
        metavar="CIDR,...",
        help="let in the HTTP probes that Pods declare from here, whatever their policies say (nowhere)",
    )
    parser.add_argument("--strict", action="store_true", help="end if anything is wrong with a manifest at the start")
    parser.add_argument(
        "--allow-unenforced", action="store_true", help="start although a policy cannot be used: more will be let in"
    )
    brought = parser.add_argument_group("a CA of your own", "all three or none; the files are watched for changes")
    brought.add_argument("--trust-anchors-file", type=Path, help="PEM: the roots that workloads trust")
    brought.add_argument(
        "--issuer-certificate-file", type=Path, help="PEM: what signs, then what is between it and its root"
    )
    brought.add_argument("--issuer-key-file", type=Path, help="PEM: the issuer's key")
    parser.add_argument("--ends-with-apps", action="store_true", help=argparse.SUPPRESS)  # of `sponson up`
    logs.add_arguments(parser, f"${logs.OUR_LOG}, else {_FILTER}")
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    files = (arguments.trust_anchors_file, arguments.issuer_certificate_file, arguments.issuer_key_file)
    if any(files) and not all(files):
        raise ServeError("--trust-anchors-file, --issuer-certificate-file and --issuer-key-file go together")
    if arguments.addr.is_loopback:
        check_loopback()
    rules = Rules(arguments.strict, arguments.allow_unenforced)
    settings = Settings(
        arguments.dir,
        State(arguments.state_dir),
        arguments.addr,
        arguments.default_policy,
        arguments.probe_networks,
        rules=rules,
    )
    # Linkerd's variables are the sidecars': a shell that has them may start the control plane all the same.
    env = {name: value for name, value in os.environ.items() if name == logs.OUR_LOG}
    logging = logs.begin(arguments, env, sys.stderr, _FILTER)
    brought_files = Brought(*files) if all(files) else None
    try:
        serve(settings._replace(brought=brought_files, ends_with_apps=arguments.ends_with_apps), logging.say_folded)
    finally:
        logging.close()
    return 0
