"""What every kind has: a name, a namespace, and the annotations that several kinds share.

Law: an annotation that cannot be understood is an error at its own line, never silently the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from proxy.mesh.manifests.document import Value
from proxy.mesh.model import DEFAULT_OPAQUE_PORTS, Key, PortSet

_DNS_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
_RANGE: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")

OPAQUE_PORTS: Final = "config.linkerd.io/opaque-ports"


def key_of(document: Value) -> Key:
    """Namespace (`default` if absent) and name of an object."""
    metadata = document.need("metadata")
    name, namespace = metadata.need("name"), metadata.get("namespace")
    for part in (name, namespace):
        if part is not None and not is_dns_name(part.text()):
            raise part.error(f"{part.text()!r} is no DNS name")
    return (namespace.text() if namespace is not None else "default", name.text())


def is_dns_name(text: str) -> bool:
    return _DNS_NAME.fullmatch(text) is not None


def opaque_ports(document: Value, named: Iterable[tuple[str, int]]) -> PortSet:
    """The annotation `config.linkerd.io/opaque-ports`: numbers, ranges and names of the object's own ports."""
    annotation = document.get("metadata", "annotations", OPAQUE_PORTS)
    if annotation is None:
        return DEFAULT_OPAQUE_PORTS
    known = dict(named)
    ranges = []
    for part in filter(None, map(str.strip, annotation.text().split(","))):
        match = _RANGE.fullmatch(part)
        if match is not None:
            low, high = int(match[1]), int(match[2] or match[1])
            if not 1 <= low <= high <= 65535:
                raise annotation.error(f"{part!r} is no range of ports")
        elif part in known:
            low = high = known[part]
        else:
            raise annotation.error(f"{part!r} is neither a port, a range of ports nor the name of a port")
        ranges.append((low, high))
    return PortSet(tuple(ranges))
