"""Run the proxy of one workload.

It is configured by environment variables: LINKERD2_PROXY_*, as Linkerd's
injector sets them, and SPONSON_* (docs/compatibility.md). For a workload of
`sponson mesh`, `sponson mesh env ... -- sponson run` sets all of them; for one
that has joined from another machine, its sidecar.env has them.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
from pathlib import Path

from proxy import process
from proxy.cli import logs
from proxy.config import ConfigError, parse
from proxy.config.reading.parse import EX_USAGE
from proxy.core import limits
from proxy.core.small_file import read_most
from proxy.ports import BindError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env-file", type=Path, help="lines of NAME=value, as docker and systemd read them, over the environment"
    )
    logs.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    env = dict(os.environ)
    if arguments.env_file is not None:
        try:
            env |= _read(arguments.env_file)
        except (OSError, ValueError) as error:
            print(f"--env-file {arguments.env_file}: {error}", file=sys.stderr)
            return EX_USAGE
    _forbid_core_dumps()
    logging = logs.begin(arguments, env, sys.stdout)
    try:
        return process.run(parse(env), logging, env)
    except ConfigError as error:
        logging.flush()  # the log names the bad values, and comes first
        print(error, file=sys.stderr)
        return EX_USAGE
    except BindError as error:
        print(error, file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"Initialization failure: {error}", file=sys.stderr)
        return 1
    finally:
        logging.close()


def _read(path: Path) -> dict[str, str]:
    """OSError if the file cannot be read, ValueError if a line is not a variable."""
    found = {}
    with path.open("rb") as file:  # a pipe will do: nothing else runs yet
        text = read_most(file.fileno(), path, limits.CERTIFICATES_BYTES).decode()
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not name.isidentifier():
            raise ValueError(f"line {number} is no NAME=value")
        found[name] = value
    return found


def _forbid_core_dumps() -> None:
    """A dump would write the workload's key to a disk, or hand it to whatever program the kernel pipes dumps to.

    A limit of one byte stops both kinds: zero would still let a dump go into a pipe (core(5)). The filter keeps memory out of a dump
    that is made all the same, where the limit was zero already and cannot be raised to one.
    """
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    limit = 0 if hard == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
    try:
        Path("/proc/self/coredump_filter").write_text("0")
    except OSError:
        pass  # no /proc, or a kernel without dumps
