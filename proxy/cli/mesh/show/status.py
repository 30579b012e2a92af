"""Show whether a control plane runs, what it holds, which sidecars ask it, and which apps run by `sponson up`."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import Any, Final

from proxy.cli.mesh.arguments import add_state
from proxy.cli.mesh.show.tables import age, table
from proxy.mesh.claim import running
from proxy.mesh.report.desk import ask
from proxy.mesh.state import State, StateError

FAILURES: Final = (StateError,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_state(parser)


def run(arguments: argparse.Namespace) -> int:
    """0 if a control plane runs, 1 otherwise."""
    state = State(arguments.state_dir)
    now = running(state)
    if now is None:
        print(json.dumps({"running": False}) if arguments.json else f"no control plane runs with {state.directory}")
        return 1
    found = {"running": True, "pid": now.pid, "manifests": str(now.manifests), **ask(state, {"ask": "status"})}
    print(json.dumps(found, indent=1) if arguments.json else shown(found))
    return 0


def shown(found: dict[str, Any]) -> str:
    now = found["now"]
    objects = ", ".join(f"{count} {kind}" for kind, count in sorted(found["objects"].items())) or "nothing"
    lines = [
        f"control plane   at {found['serving_at']} for {age(now - found['since'])}, process {found['pid']}",
        f"manifests       {found['manifests']}: {objects}",
        f"state           {found['state_dir']}",
        f"CA              issuer until {_date(found['issuer_until'])}, trust anchors until "
        f"{', '.join(map(_date, found['anchors_until']))}, {found['certificates']} certificates valid",
        f"streams         {len(found['streams'])}, {found['questions']} different questions",
        *(f"{'wrong' if one['is_error'] else 'odd':<15} {one['text']}" for one in found["faults"]),
    ]
    if found["apps"]:
        columns = ("up", "command", "serves", "http_proxy", "admin", "process")
        rows = [_app(app) for app in found["apps"]]
        lines += ["", table(columns, rows)]
    return "\n".join(lines)


def _app(app: dict[str, Any]) -> list[str]:
    name = f"{app['name']}.{app['namespace']}.svc.cluster.local"
    serves = f"{name} from port {app['port']}" if app["port"] else ""
    own = f"{app['namespace']}/{app['name']}-{app['replica']}"
    local = "http://127.0.0.1:"
    return [own, app["command"], serves, f"{local}{app['outbound']}", f"{local}{app['admin']}", str(app["pid"])]


def _date(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
