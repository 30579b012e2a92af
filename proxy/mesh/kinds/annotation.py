"""Annotations that several kinds share, read into values.

An annotation that cannot be understood is an error at its own line, never silently the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from proxy.mesh.manifests.kind import Metadata
from proxy.mesh.manifests.schema import PORT, TEXT, Either, likely, shown
from proxy.mesh.manifests.value import Value
from proxy.mesh.model import DEFAULT_POLICIES, PortSet

OPAQUE_PORTS: Final = "config.linkerd.io/opaque-ports"
DEFAULT_POLICY: Final = "config.linkerd.io/default-inbound-policy"

PORT_OR_NAME: Final = Either(int=PORT, str=TEXT)

TOKEN: Final = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]{1,256}")
"""RFC 9110 section 5.6.2."""

VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,2048}")

_RANGE: Final = re.compile(r"([0-9]{1,5})(?:\s*-\s*([0-9]{1,5}))?")
_PORT_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,62})")
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_GO_DURATION: Final = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ns|us|µs|ms|s|m|h))+")
_GO_PART: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ns|us|µs|ms|s|m|h)")
_GO_UNIT_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class PortNames(NamedTuple):
    """Ports as an annotation lists them: numbers, ranges, and names of the ports of whatever it is applied to."""

    ports: PortSet
    names: tuple[str, ...] = ()

    def contains(self, port: int, named: Iterable[tuple[str, int]]) -> bool:
        return port in self.ports or any(number == port and name in self.names for name, number in named)


def port_names(meta: Metadata, name: str) -> PortNames | None:
    """The ports in an annotation; None if there is no such annotation."""
    given = meta.annotations.get(name)
    if given is None:
        return None
    ranges, names = [], []
    for part in filter(None, map(str.strip, given.text().split(","))):
        match = _RANGE.fullmatch(part)
        if match is None:
            if _PORT_NAME.fullmatch(part) is None:
                raise given.error(f"{shown(part)} is neither a port, a range of ports nor the name of a port")
            names.append(part)
            continue
        low, high = int(match[1]), int(match[2] or match[1])
        if not 1 <= low <= high <= 65535:
            raise given.error(f"{shown(part)} is no range of ports")
        ranges.append((low, high))
    return PortNames(PortSet(tuple(ranges)), tuple(names))


def known_port_names(meta: Metadata, name: str, named: Iterable[tuple[str, int]]) -> PortNames | None:
    """As `port_names`; ManifestError for a name that is not one of the object's own ports."""
    found = port_names(meta, name)
    known = tuple(one for one, _ in named if one)
    for missing in () if found is None else (one for one in found.names if one not in known):
        text = f"{shown(missing)} is neither a port, a range of ports nor the name of a port"
        raise meta.annotations[name].error(f"{text}{likely(missing, known)}")
    return found


def port_set(given: Value) -> PortSet:
    """Numbers and ranges only."""
    ranges = []
    for part in filter(None, map(str.strip, given.text().split(","))):
        match = _RANGE.fullmatch(part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match is not None else (0, 0)
        if not 1 <= low <= high <= 65535:
            raise given.error(f"{shown(part)} is no range of ports")
        ranges.append((low, high))
    return PortSet(tuple(ranges))


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


def go_duration_s(value: Value) -> float:
    """A duration as Go writes it: 300ms, 1.5s, 1h30m."""
    text = value.text()
    if text == "0":
        return 0.0
    if len(text) > 64 or _GO_DURATION.fullmatch(text) is None:
        raise value.error(f"{shown(text)} is no duration such as 250ms, 1.5s or 1m30s")
    return sum(float(part[1]) * _GO_UNIT_S[part[2]] for part in _GO_PART.finditer(text))


def decimal(value: Value, low: float, high: float) -> float:
    """A number that is not in quotes."""
    try:
        found = float(str(value.raw)) if value.tag in ("int", "float") else -1.0
    except ValueError:
        found = -1.0
    if not low <= found <= high:
        raise value.error(f"{shown(str(value.raw))} is no number between {low:g} and {high:g}")
    return found
