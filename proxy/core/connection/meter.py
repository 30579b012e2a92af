"""Meter: the plain numbers of all connections that share one set of transport labels.

A connection adds to it and knows nothing of names or labels; metrics
reads it at scrape time (docs/linkerd/metrics.md, section 4). Bytes are counted
as seen above TLS; an attempt that fails counts neither open nor close.
"""

from __future__ import annotations

from proxy.core.failure.faults import Faults
from proxy.core.failure.reason import Reason


class Meter:
    __slots__ = ("opened", "closed", "read_bytes", "written_bytes", "open_count", "updated_at", "_faults")

    def __init__(self, faults: Faults | None = None) -> None:
        """`faults` counts for all meters of one direction."""
        self.opened = 0
        self.closed: dict[str, int] = {}
        """Closed connections by errno name (`ECONNRESET`), which is empty for a clean close."""
        self.read_bytes = 0
        self.written_bytes = 0
        self.open_count = 0
        self.updated_at = 0.0
        """When a connection last opened or closed, in monotonic seconds."""
        self._faults = faults

    def open(self, now: float) -> None:
        self.opened += 1
        self.open_count += 1
        self.updated_at = now

    def close(self, errno: str, now: float) -> None:
        self.closed[errno] = self.closed.get(errno, 0) + 1
        self.open_count -= 1
        self.updated_at = now

    def lost(self, reason: Reason) -> None:
        """Count the end of a connection, or a failure to make one, by the reason that its codec gets too."""
        faults = self._faults
        if faults is not None:
            faults.count(reason)
