"""A Value as JSON would represent it."""

from __future__ import annotations

from typing import Any

from proxy.mesh.manifests.value import Value


def plain(value: Value) -> Any:
    raw = value.raw
    if isinstance(raw, dict):
        return {key: plain(item) for key, item in raw.items()}
    if isinstance(raw, list):
        return [plain(item) for item in raw]
    if value.tag == "int":
        return int(raw, 0)
    if value.tag == "float":
        return float(raw)
    return {"bool": raw.lower() == "true", "null": None}.get(value.tag, raw)
