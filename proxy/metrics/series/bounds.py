"""Bounds the series of metrics: for labels whose values a client can make up, the number of values in each family.

A name in a ClientHello, an authority, a port that a client tries: each may have
a limited number of values in a family, and those beyond are counted together,
under OTHER. Names from the control plane (endpoints, routes) do not depend on
clients, and only the bound of the whole family applies to them.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.metrics.cells import Labels

OTHER: Final = "(other)"
"""Stands for the values beyond the bound; no name, address or number looks like it."""

_BOUNDS: Final = {
    "sni": limits.LABEL_NAMES,
    "authority": limits.LABEL_NAMES,
    "hostname": limits.LABEL_NAMES,
    "target_name": limits.LABEL_NAMES,
    "target_addr": limits.LABEL_PORTS,
    "target_ip": limits.LABEL_PORTS,
    "target_port": limits.LABEL_PORTS,
    "srv_port": limits.LABEL_PORTS,
}
"""How many values these labels of accepted connections and their requests may have in one family."""
_KEPT: Final = frozenset(("direction", "peer", "classification", "error", "result", "tls"))
"""Labels that keep their values even when a whole family is full."""


class Bounds:
    """How many series of one family have each value of a bounded label."""

    __slots__ = ("_values", "_count")

    def __init__(self) -> None:
        self._values: Final[dict[str, dict[str, int]]] = {}
        self._count = 0

    def admit(self, labels: Labels) -> Labels:
        """The labels under which a series that is not there yet is counted: these, or some values folded into OTHER."""
        if self._count >= limits.FAMILY_SERIES:
            return tuple([(name, value if name in _KEPT else OTHER) for name, value in labels])
        if ("direction", "outbound") in labels and ("peer", "src") not in labels:
            return labels
        return tuple([(name, value if self._may(name, value) else OTHER) for name, value in labels])

    def _may(self, name: str, value: str) -> bool:
        most = _BOUNDS.get(name)
        if most is None:
            return len(value) <= limits.REMEMBERED_TEXT_BYTES
        known = self._values.get(name)
        if known is None or len(known) < most or value in known:
            return len(value) <= limits.LABEL_BYTES
        return False

    def made(self, labels: Labels) -> None:
        """A series with these labels exists now."""
        self._count += 1
        for name, value in labels:
            if name in _BOUNDS and value != OTHER:
                known = self._values.setdefault(name, {})
                known[value] = known.get(value, 0) + 1

    def dropped(self, labels: Labels) -> None:
        self._count -= 1
        for name, value in labels:
            known = self._values.get(name)
            if known is not None and value in known:
                known[value] -= 1
                if not known[value]:
                    del known[value]
