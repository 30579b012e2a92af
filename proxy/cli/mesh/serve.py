"""Serve identity, destination and policy from a directory of manifests, which is watched for changes."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Final

from proxy.cli.mesh.arguments import add_state, an_addr
from proxy.mesh.manifests.load import ManifestErrors
from proxy.mesh.model import DEFAULT_POLICIES
from proxy.mesh.serve import ServeError, Settings
from proxy.mesh.serve import run as serve
from proxy.mesh.state import DEFAULT_ADDR, State, StateError

FAILURES: Final = (StateError, ServeError, ManifestErrors)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, required=True, help="the manifests: *.yaml and *.yml, watched for changes")
    parser.add_argument(
        "--addr", type=an_addr, default=DEFAULT_ADDR, help="ip:port, port 0 for a free one (%(default)s)"
    )
    parser.add_argument(
        "--default-policy", choices=DEFAULT_POLICIES, default=DEFAULT_POLICIES[0], help="of inbound ports (%(default)s)"
    )
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    serve(Settings(arguments.dir, State(arguments.state_dir), arguments.addr, arguments.default_policy))
    return 0
