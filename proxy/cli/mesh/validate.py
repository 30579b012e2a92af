"""Check a directory of manifests as `mesh serve` would, and list all that is wrong with it.

What is merely suspicious (a kind that nothing reads, a selector without workloads) is a warning, and an error with --strict.
What Linkerd's proxies do and Sponson's do not yet is a note, and never an error.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.store.manifests import ManifestErrors, Reader, counts
from proxy.mesh.store.store import Said

FAILURES: Final = (ManifestErrors,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="the manifests: *.yaml, *.yml and *.json")
    parser.add_argument("--strict", action="store_true", help="what is only odd is wrong too")
    parser.add_argument("--json", action="store_true", help="print one JSON object a complaint, a line each")


def run(arguments: argparse.Namespace) -> int:
    update = Reader(arguments.directory, CATALOG).read_all()
    for said in update.faults:
        print(json.dumps(_fields(said)) if arguments.json else f"{said}{'' if said.is_error else ' (a warning)'}")
    wrong = [said for said in update.faults if said.is_error or arguments.strict]
    if not wrong and not arguments.json:
        print(f"{arguments.directory}: {counts(update)}: in good order")
    if update.may_restrict:
        print("a policy cannot be used: `mesh serve` would not start", file=sys.stderr)
    return 1 if wrong else 0


def _fields(said: Said) -> dict[str, object]:
    return {
        "file": said.source.file,
        "line": said.source.line,
        "text": said.text,
        "severity": "error" if said.is_error else "warning",
        "object": str(said.of) if said.of is not None else None,
    }
