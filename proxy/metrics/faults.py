"""Faults: connections and exchanges that ended by a fault, by direction and reason. A family of our own.

Law: every one is counted, also those that never became anything: a handshake
that broke, first bytes that nobody understands, a request that broke the rules.
"""

from __future__ import annotations

from typing import Final

from proxy.core.reason import Reason
from proxy.metrics.cells import Counter
from proxy.metrics.registry import Registry

NO_FAULT: Final = frozenset(
    {Reason.COMPLETE, Reason.EARLY_RESPONSE, Reason.PEER_CLOSED, Reason.SHUTDOWN, Reason.CANCELLED}
)


class FaultMetrics:
    """`direction`: `inbound`, `outbound` or `admin`."""

    __slots__ = ("_registry", "_direction", "_counters")

    def __init__(self, registry: Registry, direction: str) -> None:
        self._registry: Final = registry
        self._direction: Final = direction
        self._counters: Final[dict[Reason | str, Counter]] = {}

    def count(self, reason: Reason | str) -> None:
        """A Reason that is no fault is passed over; a text (`tls_handshake`) names what has no Reason. Few texts, please."""
        if reason in NO_FAULT:
            return
        counter = self._counters.get(reason)
        if counter is None:
            name = reason if isinstance(reason, str) else reason.name.lower()
            labels = (("direction", self._direction), ("reason", name))
            counter = self._counters[reason] = self._registry.counter("sponson_connection_faults_total", labels)
        counter.value += 1
