"""Show what the running control plane knows of one object: from which file, since when, and which sidecars watch it."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from proxy.cli.mesh.arguments import add_state, dns_label
from proxy.cli.mesh.show.tables import age, table
from proxy.mesh.report.desk import ask
from proxy.mesh.report.plain import without_empty
from proxy.mesh.state import State, StateError

FAILURES: Final = (StateError,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", help="such as service, externalworkload, server, httproute")
    parser.add_argument("name")
    parser.add_argument("--namespace", type=dns_label, default="default", help="(%(default)s)")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    request = {"ask": "describe", "kind": arguments.kind, "namespace": arguments.namespace, "name": arguments.name}
    found = ask(State(arguments.state_dir), request)
    print(json.dumps(found, indent=1) if arguments.json else described(found))
    return 0


def described(found: dict[str, Any]) -> str:
    stale = ": its manifest cannot be read now, this is what it said last" if found.get("stale") else ""
    lines = [
        f"{found['kind']} {found['name']}" + (f" in namespace {found['namespace']}" if found["namespace"] else ""),
        f"from {found['source']}{stale}, for {age(found['now'] - found['since'])} as it is",
        *(f"wrong: {fault}" for fault in found["faults"]),
        "",
        *_lines(
            without_empty({name: one for name, one in found["model"].items() if name not in ("namespace", "name")})
        ),
        "",
    ]
    if not found["watchers"]:
        return "\n".join([*lines, "no workload watches it"])
    rows = [[one["who"], one["asks"], one["about"], age(found["now"] - one["since"])] for one in found["watchers"]]
    return "\n".join([*lines, table(("watched by", "asks", "about", "for"), rows)])


def _lines(value: Any, depth: int = 0) -> list[str]:
    """Nested as in YAML."""
    indent = "  " * depth
    if isinstance(value, dict):
        lines = []
        for name, one in value.items():
            if _is_labels(one):
                lines.append(f"{indent}{name}: {', '.join(f'{key}={text}' for key, text in one)}")
            elif isinstance(one, dict) or (
                isinstance(one, list) and any(isinstance(item, dict | list) for item in one)
            ):
                lines += [f"{indent}{name}:", *_lines(one, depth + 1)]
            else:
                lines.append(f"{indent}{name}: {', '.join(map(str, one)) if isinstance(one, list) else one}")
        return lines
    if isinstance(value, list):
        lines = []
        for one in value:
            nested = _lines(one, depth + 1)
            lines += [f"{indent}- {nested[0].lstrip()}", *nested[1:]] if nested else []
        return lines
    return [f"{indent}{value}"]


def _is_labels(value: Any) -> bool:
    """Pairs of texts, as labels and selectors are kept."""
    return isinstance(value, list) and all(
        isinstance(one, list) and len(one) == 2 and all(isinstance(text, str) for text in one) for one in value
    )
