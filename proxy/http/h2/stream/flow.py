"""Flow control (RFC 9113 section 5.2): what a peer may still send us, and what we may still send it.

Credit goes back only for bytes that the other side took, or that were
thrown away; so memory never exceeds the window. It goes back in halves of
the window, so that small bodies cause no WINDOW_UPDATE at all.
"""

from __future__ import annotations

from proxy.core.codec import Wire
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.settings import H2Settings


class Credit:
    """What the peer may still send, on one stream or on the connection.

    Its two steps, receiving and taking, are written out where every DATA frame passes (`H2Stream.receive_data`).
    """

    __slots__ = ("window", "taken", "batch")

    def __init__(self, window_bytes: int, announced_bytes: int) -> None:
        """`window_bytes` is what the peer may send, which is more than was announced until it acknowledged that."""
        self.window = window_bytes
        """What the peer may still send; less than nothing is its fault, `overrun`."""
        self.taken = 0
        """What was taken and not given back yet."""
        self.batch = (announced_bytes >> 1) or 1
        """Once this much was taken, it is given back."""

    def give_back(self) -> int:
        """The increment to announce, now that a batch was taken."""
        taken = self.taken
        self.taken = 0
        self.window += taken
        return taken


class Flow:
    """The windows of a connection, those that its next streams begin with, and whether its socket takes more."""

    __slots__ = ("is_writable", "send_window", "peer_window", "stream_window", "credit", "_allowed_bytes", "_wire")

    def __init__(self, wire: Wire, settings: H2Settings) -> None:
        self.is_writable = True
        self.send_window = frame.DEFAULT_WINDOW
        """What the connection may still send."""
        self.peer_window = frame.DEFAULT_WINDOW
        """SETTINGS_INITIAL_WINDOW_SIZE of the peer: what a new stream may send."""
        self.stream_window = max(settings.stream_window_bytes, frame.DEFAULT_WINDOW)
        """What the peer may send on a new stream: the protocol's default until it acknowledged a smaller one."""
        window_bytes = max(settings.connection_window_bytes, frame.DEFAULT_WINDOW)
        self.credit = Credit(window_bytes, window_bytes)
        self._allowed_bytes = frame.DEFAULT_WINDOW + window_bytes
        """What each side has let the other send so far, without what was discarded."""
        self._wire = wire

    def take(self, size: int) -> None:
        """Give back the credit of DATA that was taken or thrown away."""
        credit = self.credit
        credit.taken += size
        if credit.taken >= credit.batch:
            self.give_back()

    def give_back(self) -> None:
        """A batch of the connection's credit was taken."""
        increment = self.credit.give_back()
        self._allowed_bytes += increment
        self._wire.write(frame.window_update(0, increment))

    def waste(self, size: int) -> None:
        """Give back the credit of DATA that is discarded; it does not count as progress."""
        # Or a peer could pay for a flood with DATA that is thrown away.
        self._allowed_bytes -= size
        self.take(size)

    def widen(self, increment: int) -> None:
        """A WINDOW_UPDATE of the connection."""
        self.send_window += increment
        self._allowed_bytes += increment
        if not increment:
            raise ProtocolError("window increment of 0")
        if self.send_window > frame.WINDOW_LIMIT:
            raise ProtocolError("window over 2^31-1", Reason.FLOW_CONTROL)

    def moved_bytes(self) -> int:
        """DATA both ways so far."""
        return self._allowed_bytes - self.send_window - self.credit.window


def overrun() -> ProtocolError:
    return ProtocolError("more data than the window allows", Reason.FLOW_CONTROL)
