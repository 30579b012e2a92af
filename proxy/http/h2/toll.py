"""Toll: what a peer pays for frames that are cheap to send and dear to answer.

O(1) per frame, and no memory of which frames they were. Real progress settles
it (octets moved, messages of the other side, finished exchanges), each at its
rate, so that one octet settles nothing; so does time. Credit is not saved up.
"""

from __future__ import annotations

from proxy.core import limits
from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason


class Toll:
    __slots__ = ("spent", "_limit", "_reason", "_since", "_progress")

    def __init__(self, limit: int, reason: Reason, now: float, progress: int = 0) -> None:
        self.spent = 0
        """Work that was asked for takes from it."""
        self._limit = limit
        self._reason = reason
        self._since = now
        self._progress = progress

    def settle(self, progress: int) -> None:
        """`progress` is a sum over the life of whoever pays; less than before is work to be paid for."""
        self.spent = max(0, self.spent + self._progress - progress)
        self._progress = progress

    def charge(self, cost: int, now: float) -> None:
        """Raises ProtocolError with the toll's reason when the limit is passed."""
        if now - self._since > limits.FLOOD_PERIOD_S:
            self._since = now
            self.spent = 0
        self.spent += cost
        if self.spent > self._limit:
            raise ProtocolError(self._reason.value, self._reason)
