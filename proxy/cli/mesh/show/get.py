"""Show what the running control plane knows: services, endpoints, workloads, policies or routes, each with its file and line."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from proxy.cli.mesh.arguments import add_state, dns_label
from proxy.cli.mesh.show.tables import age, table
from proxy.mesh.report.desk import ask
from proxy.mesh.state import State, StateError

FAILURES: Final = (StateError,)

COLUMNS: Final = {
    "services": ("name", "addresses", "ports", "endpoints"),
    "endpoints": ("service", "port", "address", "workload", "identity", "zone", "ready"),
    "workloads": ("name", "kind", "addresses", "ports", "identity", "inbound_port", "ready", "streams"),
    "policies": ("kind", "name", "says"),
    "routes": ("kind", "name", "parents", "hosts", "rules"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=COLUMNS, help="what to show")
    parser.add_argument("--namespace", type=dns_label, help="of this namespace only")
    parser.add_argument("--json", action="store_true", help="as JSON: a list of objects")
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    what = arguments.what
    answer = ask(State(arguments.state_dir), {"ask": what})
    rows: list[dict[str, Any]] = answer[what]
    if arguments.namespace is not None:
        rows = [row for row in rows if row["namespace"] == arguments.namespace]
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    columns = ("namespace", *COLUMNS[what])
    cells = [[*(row[name] for name in columns), _source(row), age(answer["now"] - row["since"])] for row in rows]
    print(table([*(name.replace("_", " ") for name in columns), "source", "age"], cells) if rows else f"no {what}")
    return 0


def _source(row: dict[str, Any]) -> str:
    """The file and line. A stale object was read there once, and cannot be read now."""
    return f"{row['source']} (stale)" if row.get("stale") else str(row["source"])
