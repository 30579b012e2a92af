"""Credit: what a peer may still send, for one stream or for a connection (RFC 9113 section 5.2).

Law: credit goes back only for bytes that the other side took, or that were
thrown away; so memory never exceeds the window. It goes back in halves of
the window, so that small bodies cause no WINDOW_UPDATE at all.
"""

from __future__ import annotations

from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason


class Credit:
    __slots__ = ("_window", "_taken", "_batch")

    def __init__(self, window_bytes: int, announced_bytes: int) -> None:
        """`window_bytes` is what the peer may send, which is more than was announced until it acknowledged that."""
        self._window = window_bytes
        """What the peer may still send."""
        self._taken = 0
        """Taken, not yet given back."""
        self._batch = (announced_bytes >> 1) or 1

    def receive(self, size: int) -> None:
        self._window -= size
        if self._window < 0:
            raise ProtocolError("more data than the window allows", Reason.FLOW_CONTROL)

    def take(self, size: int) -> int:
        """Bytes were taken; the increment to announce now, or 0."""
        taken = self._taken + size
        if taken < self._batch:
            self._taken = taken
            return 0
        self._taken = 0
        self._window += taken
        return taken
