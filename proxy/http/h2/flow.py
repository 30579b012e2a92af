"""Credit: what a peer may still send, for one stream or for a connection (RFC 9113 section 5.2).

Credit goes back only for bytes that the other side took, or that were
thrown away; so memory never exceeds the window. It goes back in halves of
the window, so that small bodies cause no WINDOW_UPDATE at all.
"""

from __future__ import annotations

from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason


class Credit:
    """Its two steps, receiving and taking, are written out where every DATA frame passes (connection.py, stream.py)."""

    __slots__ = ("window", "taken", "batch")

    def __init__(self, window_bytes: int, announced_bytes: int) -> None:
        """`window_bytes` is what the peer may send, which is more than was announced until it acknowledged that."""
        self.window = window_bytes
        """What the peer may still send; less than nothing is its fault, `overrun`."""
        self.taken = 0
        """Taken, not yet given back."""
        self.batch = (announced_bytes >> 1) or 1
        """So much taken is given back at once."""

    def give_back(self) -> int:
        """The increment to announce, now that a batch was taken."""
        taken = self.taken
        self.taken = 0
        self.window += taken
        return taken


def overrun() -> ProtocolError:
    return ProtocolError("more data than the window allows", Reason.FLOW_CONTROL)
