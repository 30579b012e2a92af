"""CPU per request, latency and memory beside other proxies, in one run.

The bench stands beside the sources and not in the package, so this works in
a checkout of the project: from its directory, or with it on PYTHONPATH. `make bench`
runs it; `python -m bench --help` lists every option.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    bench = _bench()
    if bench is None:
        parser.exit(
            1,
            "sponson bench: there is no bench here: it is not part of the installed package. "
            "Run it in a checkout of the project (the directory with bench/ and proxy/).\n",
        )
    bench.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    status: int = _bench().run(arguments)
    return status


def _bench() -> Any:
    """The checkout's bench, or None: that of this source tree, else of the current directory."""
    for root in (Path(__file__).parents[2], Path.cwd()):
        if (root / "bench" / "measure.py").is_file():
            if str(root) not in sys.path:
                sys.path.insert(0, str(root))
            return import_module("bench.__main__")
    return None
