"""TransferCost: outbound_tcp_transfer_cost_bytes_total, the bytes of connections to endpoints by how far away those are.

The meters of those connections have the bytes already, and among their labels the zone that discovery gave. At a
scrape they are added up, together with those of meters that are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.connection.meter import Meter
from proxy.metrics.cells import Labels

_TO_ENDPOINTS: Final = (("direction", "outbound"), ("peer", "dst"))
_SPELLED: Final = {"local": "Local", "remote": "Remote"}


class TransferCost:
    __slots__ = ("_gone",)

    def __init__(self) -> None:
        self._gone: Final[dict[str, tuple[int, int]]] = {}

    def dropped(self, labels: Labels, meter: Meter) -> None:
        """A meter's series ends; its numbers are kept here."""
        _add(self._gone, labels, meter)

    def totals(self, meters: Mapping[Labels, Meter]) -> dict[str, tuple[int, int]]:
        """Octets sent and received by `Local`, `Remote` and `Unknown`; only those to which there were connections."""
        found = dict(self._gone)
        for labels, meter in meters.items():
            _add(found, labels, meter)
        return found


def _add(totals: dict[str, tuple[int, int]], labels: Labels, meter: Meter) -> None:
    if meter.opened and labels[:2] == _TO_ENDPOINTS:
        zone = next((_SPELLED.get(said, "Unknown") for name, said in labels if name == "dst_zone_locality"), "Unknown")
        sent, received = totals.get(zone, (0, 0))
        totals[zone] = (sent + meter.written_bytes, received + meter.read_bytes)
