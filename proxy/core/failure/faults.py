"""Faults: how many connections and exchanges of one direction ended by a fault, by reason.

Every fault is counted, also of connections that came to nothing: a handshake
that failed, first bytes that no rule understands, a request that broke the
rules. Ends that are no fault (complete, closed, shut down) are not counted.
"""

from __future__ import annotations

from typing import Final

from proxy.core.failure.reason import Reason

_NO_FAULT: Final = frozenset(
    {Reason.COMPLETE, Reason.EARLY_RESPONSE, Reason.PEER_CLOSED, Reason.SHUTDOWN, Reason.CANCELLED}
)


class Faults:
    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Numbers by the reason's name in lower case."""

    def count(self, reason: Reason) -> None:
        if reason not in _NO_FAULT:
            self.count_as(reason.name.lower())

    def count_as(self, name: str) -> None:
        """A fault that has no Reason, such as `tls_handshake`: one of few names, never a peer's words."""
        self.counts[name] = self.counts.get(name, 0) + 1
