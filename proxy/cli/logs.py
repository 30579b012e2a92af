"""How a command logs: `--log` and `--log-format` come before SPONSON_LOG, and that before Linkerd's variables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Final, TextIO

from proxy.core.log import DEFAULT_FILTER, Logging, set_up
from proxy.core.log.forms import JSON, PEOPLE, PLAIN

LOG: Final = "LINKERD2_PROXY_LOG"
LOG_FORMAT: Final = "LINKERD2_PROXY_LOG_FORMAT"
OUR_LOG: Final = "SPONSON_LOG"


def add_arguments(parser: argparse.ArgumentParser, variables: str = f"${OUR_LOG}, else ${LOG}") -> None:
    """`variables` says where the filter comes from without the option."""
    parser.add_argument(
        "--log", metavar="FILTER", help=f"what is logged, such as debug or warn,linkerd_app_inbound=debug ({variables})"
    )
    parser.add_argument(
        "--log-format",
        choices=(PEOPLE, PLAIN, JSON),
        help="how it is written; plain and json as Linkerd does (people on a terminal, else plain)",
    )


def begin(
    arguments: argparse.Namespace, env: Mapping[str, str], stream: TextIO, default_filter: str = DEFAULT_FILTER
) -> Logging:
    """Set logging up from the arguments and the environment; invalid items of the filter are named on stderr."""
    text = arguments.log if arguments.log is not None else env.get(OUR_LOG) or env.get(LOG)
    form = arguments.log_format or env.get(LOG_FORMAT, "").strip().lower()
    return set_up(text, stream, sys.stderr, form, default_filter)
