"""What is counted about accepted connections, found once per destination and policy instead of once per connection.

Code here only adds to numbers; the names of the series are in labels.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.core.address.addr import Addr
from proxy.core.connection.meter import Meter
from proxy.core.histogram import Histogram
from proxy.metrics.cells import Counter, Labels
from proxy.metrics.registry import Registry
from proxy.outbound import labels
from proxy.policy.client import DETECT, GRPC, HTTP_1, HTTP_2, OPAQUE, TLS, ClientPolicy
from proxy.transport.detection.detect import Detection

_NAMES: Final = {DETECT: "detect", OPAQUE: "opaq", TLS: "tls", HTTP_1: "http/1", HTTP_2: "http/2", GRPC: "http/2"}
"""The values of outbound_tcp_protocol_connections_total's label, by protocol."""


class ParentNumbers:
    """The numbers of all connections under one policy; their labels name it as parent."""

    __slots__ = ("policy", "_registry", "_protocols", "_detections")

    def __init__(self, registry: Registry, policy: ClientPolicy) -> None:
        self.policy: Final = policy
        self._registry = registry
        self._protocols: dict[str, Counter] = {}
        self._detections: _Detections | None = None
        """Made with the first detection: a policy whose protocol is known has none, and no series of them."""

    def count_protocol(self, protocol: str) -> None:
        counter = self._protocols.get(protocol)
        if counter is None:
            series = labels.protocol(_NAMES[protocol], self.policy)
            counter = self._protocols[protocol] = self._registry.counter(
                "outbound_tcp_protocol_connections_total", series
            )
        counter.add()

    def count_detection(self, detection: Detection, took_s: float) -> None:
        found = self._detections
        if found is None:
            found = self._detections = _detections(self._registry, labels.parent(self.policy.meta))
        found.results[detection].add()
        found.duration_s.observe(took_s)


class _Detections(NamedTuple):
    results: dict[Detection, Counter]
    duration_s: Histogram


def _detections(registry: Registry, parent: Labels) -> _Detections:
    results = {
        one: registry.counter("outbound_tcp_detect_http_results_total", (("result", one.value), *parent))
        for one in Detection
    }
    return _Detections(results, registry.histogram("outbound_tcp_detect_http_duration_seconds", parent))


class TargetNumbers:
    """The numbers of all connections to one original destination."""

    __slots__ = ("meter", "_registry", "_target")

    def __init__(self, registry: Registry, target: Addr) -> None:
        self.meter: Final[Meter] = registry.meter(labels.accepted(target))
        self._registry = registry
        self._target = target

    def count_error(self, label: str) -> None:
        """`label` is that of outbound_tcp_errors_total: `failfast`, `loadshed`, `i/o` or `unexpected`."""
        self._registry.counter("outbound_tcp_errors_total", (*labels.target(self._target), ("error", label))).add()

    def count_bad_head(self) -> None:
        """Linkerd's proxy counts an HTTP/1 connection that such a head ends as failed."""
        self.count_error("unexpected")
