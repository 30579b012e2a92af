"""BalancerNumbers: the *_balancer_* families of one balancer (docs/linkerd/metrics.md, sections 7 and 9).

They are looked up when the balancer is made, which sets them. The counters and gauges of the endpoints' states and of the
updates are made together, so that each is on the page from the beginning, at zero.
"""

from __future__ import annotations

from typing import Final

from proxy.metrics.cells import Labels
from proxy.metrics.registry import Registry


class BalancerNumbers:
    """`prefix` is one of names.BALANCER_PREFIXES (`outbound_http`, `control_policy`); `labels` are parent and backend
    (outbound/labels.py), with `logical` and `concrete` for outbound_tcp and outbound_tls, or `addr` for controllers."""

    __slots__ = (
        "ready_endpoints", "pending_endpoints", "endpoints", "resets", "adds", "removes", "queue_length", "queued",
        "queue_latency_s", "gate_opened", "gate_shut", "gate_opened_at", "gate_shut_at", "gate_timeout_s",
    )  # fmt: skip

    def __init__(self, registry: Registry, prefix: str, labels: Labels) -> None:
        of = f"{prefix}_balancer"
        self.ready_endpoints: Final = registry.gauge(f"{of}_endpoints", (("endpoint_state", "ready"), *labels))
        self.pending_endpoints: Final = registry.gauge(f"{of}_endpoints", (("endpoint_state", "pending"), *labels))
        self.endpoints: Final = registry.gauge(f"{of}_p2c_endpoints", labels)
        self.resets: Final = registry.counter(f"{of}_p2c_updates_total", (("op", "Reset"), *labels))
        self.adds: Final = registry.counter(f"{of}_p2c_updates_total", (("op", "Add"), *labels))
        self.removes: Final = registry.counter(f"{of}_p2c_updates_total", (("op", "Remove"), *labels))
        self.queue_length: Final = registry.gauge(f"{of}_queue_length", labels)
        self.queued: Final = registry.counter(f"{of}_queue_requests_total", labels)
        """Every request that is dispatched through the queue, whether it waited or not."""
        self.queue_latency_s: Final = registry.histogram(f"{of}_queue_latency_seconds", labels)
        self.gate_opened: Final = registry.counter(f"{of}_queue_gate_open_total", labels)
        self.gate_shut: Final = registry.counter(f"{of}_queue_gate_shut_total", labels)
        self.gate_opened_at: Final = registry.gauge(f"{of}_queue_gate_open_time_seconds", labels)
        """Seconds since the epoch, and 0 while the gate is shut; a gate begins open."""
        self.gate_shut_at: Final = registry.gauge(f"{of}_queue_gate_shut_time_seconds", labels)
        self.gate_timeout_s: Final = registry.gauge(f"{of}_queue_gate_timeout_seconds", labels)
