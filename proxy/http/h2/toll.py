"""Toll: what a peer pays for frames that are cheap to send and dear to answer.

Law: O(1) per frame, and no memory of which frames they were. Work that the
other side asked for (data, finished streams) settles it, so that only what
comes without any counts; so does time.
"""

from __future__ import annotations

from proxy.core import limits
from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason


class Toll:
    __slots__ = ("spent", "_limit", "_reason", "_since")

    def __init__(self, limit: int, reason: Reason, now: float) -> None:
        self.spent = 0
        """Work that was asked for takes from it."""
        self._limit = limit
        self._reason = reason
        self._since = now

    def charge(self, cost: int, now: float) -> None:
        """Raises ProtocolError with the toll's reason when the limit is passed."""
        if now - self._since > limits.FLOOD_PERIOD_S:
            self._since = now
            self.spent = 0
        self.spent += cost
        if self.spent > self._limit:
            raise ProtocolError(self._reason.value, self._reason)
