"""Controllers: where they are, and how long their streams may stay silent (docs/linkerd/configuration.md, sections
4.5, 4.6).

An address that is not on loopback needs the name that its server must prove.
"""

from __future__ import annotations

from typing import Any

from proxy.config.reading import syntax
from proxy.config.reading.reader import INVALID, PREFIX, Reader
from proxy.core.address.control_addr import ControlAddr


def control_addr(reader: Reader, base: str, required: str = "", prefix: str = PREFIX) -> ControlAddr | None:
    """`<base>_ADDR` and `<base>_NAME`; `required` is the text to stop with if neither is set, or empty."""
    before = len(reader.lines)
    place = reader.read(f"{base}_ADDR", syntax.host_and_port, None)
    name = reader.read(f"{base}_NAME", syntax.name, None)
    if len(reader.lines) > before:
        return None
    if place is None and name is None:
        if required:
            reader.refuse(f"{prefix}{base}_ADDR and {prefix}{base}_NAME must be set.", required)
        return None
    if place is not None:
        found = ControlAddr(place[0], place[1], name)
        if found.is_loopback:
            return found._replace(name=None)
        if name is not None:
            return found
    reader.refuse(f"{prefix}{base}_ADDR and {prefix}{base}_NAME must be specified together", INVALID)
    return None


def stream_limits(reader: Reader, values: dict[str, Any]) -> None:
    """Initial <= idle <= lifetime, as far as they are set; equal is allowed."""
    names = ("CONTROL_STREAM_INITIAL_TIMEOUT", "CONTROL_STREAM_IDLE_TIMEOUT", "CONTROL_STREAM_LIFETIME")
    limits_s: list[float | None] = [values[f"{name.lower()}_s"] for name in names]
    for low, high in ((0, 1), (0, 2), (1, 2)):
        low_s, high_s = limits_s[low], limits_s[high]
        if low_s is not None and high_s is not None and low_s > high_s:
            reader.refuse(f"{PREFIX}{names[low]} must be less than {PREFIX}{names[high]}")
