"""Detection on the inbound side: the first bytes of a connection decide where it goes, and the result is counted.

The first bytes are the client's, or the app's if that speaks first to a client that sends nothing (early.py).
"""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Final

from proxy.core import limits
from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.inbound.connection.arrival import Arrival
from proxy.transport.detection.detect import DETECT_HTTP, Detection
from proxy.transport.detection.first_bytes import FirstBytes, Opened

Detected = Callable[[Arrival, Wire, Detection], "Codec | None"]
"""Returns the codec that the connection goes to, or None if it is over, which was counted."""


class Detections:
    """The numbers of one port's policy; all five results are exported from the first connection on."""

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


class Detecting:
    """One connection until its first bytes have come; `first_bytes` is its codec."""

    __slots__ = ("first_bytes", "_arrival", "_wire", "_on_detected", "_detections", "_began_at")

    def __init__(self, arrival: Arrival, wire: Wire, timeout_s: float, on_detected: Detected) -> None:
        runtime = arrival.runtime
        self._arrival: Final = arrival
        self._wire: Final = wire
        self._on_detected: Final = on_detected
        self._detections: Final = Detections(arrival)
        self._began_at: Final = runtime.reactor.clock()
        self.first_bytes: Final = FirstBytes(wire, runtime.reactor.wheel, DETECT_HTTP, timeout_s, self._detected)
        if runtime.config.server_first_delay_s:
            early = arrival.early
            if early is not None:
                early.on_spoke = self._app_spoke
            self.first_bytes.when_silent(runtime.config.server_first_delay_s, self._silent, arrival.drop_early)

    def _detected(self, found: Detection, first: bytes) -> Opened | Reason:
        arrival = self._arrival
        self._detections.count(found, arrival.runtime.reactor.clock() - self._began_at)
        codec = self._on_detected(arrival, self._wire, found)
        return Reason.PEER_CLOSED if codec is None else Opened(codec, first)

    def _silent(self) -> None:
        if not self._arrival.begin_early(self._app_spoke):
            self._look_again()

    def _look_again(self) -> None:
        after_s = limits.EARLY_AGAIN_S * (0.5 + random())
        self.first_bytes.when_silent(after_s, self._silent_still, self._arrival.drop_early)

    def _silent_still(self) -> None:
        """Take a place that has become free, and none from others: their apps may be about to speak."""
        if self._arrival.may_begin_early:
            self._silent()
        else:
            self._look_again()

    def _app_spoke(self) -> None:
        self.first_bytes.decide(Detection.READ_TIMEOUT)
