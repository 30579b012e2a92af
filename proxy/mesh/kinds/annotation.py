"""Annotations that several kinds share, read into values.

An annotation that cannot be understood is an error at its own line, never silently the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from proxy.mesh.manifests.kind import Metadata
from proxy.mesh.manifests.schema import likely, shown
from proxy.mesh.manifests.value import Value
from proxy.mesh.model import DEFAULT_OPAQUE_PORTS, DEFAULT_POLICIES, PortSet

OPAQUE_PORTS: Final = "config.linkerd.io/opaque-ports"
DEFAULT_POLICY: Final = "config.linkerd.io/default-inbound-policy"

_RANGE: Final = re.compile(r"([0-9]{1,5})(?:\s*-\s*([0-9]{1,5}))?")
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def opaque_ports(meta: Metadata, named: Iterable[tuple[str, int]]) -> PortSet | None:
    """Numbers, ranges and names of the object's own ports; None without the annotation."""
    annotation = meta.annotations.get(OPAQUE_PORTS)
    return None if annotation is None else port_set(annotation, named)


def port_set(annotation: Value, named: Iterable[tuple[str, int]]) -> PortSet:
    known = dict(named)
    ranges = []
    for part in filter(None, map(str.strip, annotation.text().split(","))):
        match = _RANGE.fullmatch(part)
        if match is not None:
            low, high = int(match[1]), int(match[2] or match[1])
            if not 1 <= low <= high <= 65535:
                raise annotation.error(f"{shown(part)} is no range of ports")
        elif part in known:
            low = high = known[part]
        else:
            hint = likely(part, tuple(name for name in known if name))
            raise annotation.error(f"{shown(part)} is neither a port, a range of ports nor the name of a port{hint}")
        ranges.append((low, high))
    return PortSet(tuple(ranges))


def opaque_ports_or_default(meta: Metadata, named: Iterable[tuple[str, int]]) -> PortSet:
    given = opaque_ports(meta, named)
    return DEFAULT_OPAQUE_PORTS if given is None else given


def default_policy(meta: Metadata) -> str:
    """One of DEFAULT_POLICIES; empty without the annotation."""
    annotation = meta.annotations.get(DEFAULT_POLICY)
    if annotation is None:
        return ""
    text = annotation.text()
    if text not in DEFAULT_POLICIES:
        hint = likely(text, DEFAULT_POLICIES)
        raise annotation.error(f"{shown(text)} is none of {', '.join(DEFAULT_POLICIES)}{hint}")
    return text


def port_number(annotation: Value) -> int:
    return whole(annotation, 1, 65535, "port")


def whole(annotation: Value, low: int, high: int, what: str = "whole number") -> int:
    text = annotation.text()
    if not text.isascii() or not text.isdigit() or len(text) > 10 or not low <= int(text) <= high:
        raise annotation.error(f"{shown(text)} is no {what} between {low} and {high}")
    return int(text)


def ratio(annotation: Value, low: float, high: float) -> float:
    try:
        found = float(annotation.text())
    except ValueError:
        found = -1.0
    if not low <= found <= high:
        raise annotation.error(f"{shown(annotation.text())} is no number between {low:g} and {high:g}")
    return found


def duration_s(annotation: Value) -> float:
    match = _DURATION.fullmatch(annotation.text())
    if match is None:
        raise annotation.error(f"{shown(annotation.text())} is no duration such as 500ms or 10s")
    return int(match[1]) * _UNIT_S[match[2]]
