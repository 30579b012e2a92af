"""What is counted of detection: which first bytes an accepted connection began with, and how long that took to find out."""

from __future__ import annotations

from typing import Final

from proxy.inbound.connection.arrival import Arrival
from proxy.transport.detect import Detection


class Detections:
    """The numbers of one port's policy; all five results are on the page from the first connection on."""

    __slots__ = ("_results", "_duration_s")

    def __init__(self, arrival: Arrival) -> None:
        registry = arrival.runtime.registry
        server = arrival.arrived().server_labels()
        self._results: Final = {
            result: registry.counter("inbound_tcp_detect_http_results_total", (("result", result.value), *server))
            for result in Detection
        }
        self._duration_s: Final = registry.histogram("inbound_tcp_detect_http_duration_seconds", server)

    def count(self, found: Detection, took_s: float) -> None:
        self._results[found].add()
        self._duration_s.observe(took_s)
