"""Pods as Linkerd's injector renders them: the recording's default and its variations, whole, with the image replaced
by ours.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data/injected-pods.json").read_text())
VARIATIONS: tuple[str, ...] = ("default", *GOLDEN["variations"])

_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def rendered(variation: str, image: str) -> dict[str, Any]:
    """A pod's spec: initContainers, containers, volumes. The caller must add the `app` containers."""
    pod: dict[str, Any] = copy.deepcopy(GOLDEN["default"])
    change = copy.deepcopy(GOLDEN["variations"].get(variation, {}))
    first, proxy = pod["initContainers"]
    if "initContainers" in change:
        (first,) = change["initContainers"]
    changed = {variable["name"]: variable for variable in change.get("env", [])}
    kept = [variable for variable in proxy["env"] if variable["name"] not in change.get("env_unset", [])]
    proxy["env"] = [changed.pop(variable["name"], variable) for variable in kept] + list(changed.values())
    proxy |= change.get("proxy", {})
    proxy = {field: value for field, value in proxy.items() if value is not None}
    for container in (first, proxy):
        container["image"] = image
    is_native = change.get("proxy_is_in") != "containers"
    return {
        "initContainers": [first, proxy] if is_native else [first],
        "containers": [] if is_native else [proxy],
        "volumes": change.get("volumes", pod["volumes"]),
    }


def proxy_of(pod: dict[str, Any]) -> dict[str, Any]:
    every = [*pod["initContainers"], *pod["containers"]]
    found: dict[str, Any] = next(container for container in every if container["name"] == "linkerd-proxy")
    return found


def environment(container: dict[str, Any], fields: dict[str, str]) -> dict[str, str]:
    """A container's environment as a kubelet makes it: first the fields of the Downward API, then `$(NAME)` of
    variables that come before.
    """
    found: dict[str, str] = {}
    for variable in container.get("env", []):
        if "valueFrom" in variable:
            value = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            value = _REFERENCE.sub(lambda match: found.get(match[1], match[0]), variable.get("value", ""))
        found[variable["name"]] = value
    return found
