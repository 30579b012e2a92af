"""Trial: the codec of a connection to an endpoint until it is made, so that another endpoint can be dialled if it is not.

Nothing from the client is written before that: its bytes wait on its side, which reads no further meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.transport.relay import Relay, Side


class Trial(Codec):
    __slots__ = ("wire", "_on_failed", "_side")

    def __init__(self, wire: Wire, on_failed: Callable[[Reason], None]) -> None:
        """`on_failed` is called if the connection cannot be made."""
        self.wire = wire
        self._on_failed: Callable[[Reason], None] | None = on_failed
        self._side: Side | None = None

    def join(self, relay: Relay) -> None:
        """Make it the dialled connection of this relay, now that it is open."""
        self._on_failed = None
        side = self._side = relay.dial(self.wire)
        self.wire.hand_over(side)

    def give_up(self) -> None:
        """Close it, because its client has left."""
        self._on_failed = None
        self.wire.abort(Reason.CANCELLED)

    # ---- Codec

    def feed(self, data: bytes) -> None:
        side = self._side
        if side is not None:
            side.feed(data)

    def eof(self) -> None:
        side = self._side
        if side is not None:
            side.eof()

    def writable(self, is_writable: bool) -> None:
        """Nothing is written yet."""

    def lost(self, reason: Reason) -> None:
        on_failed = self._on_failed
        if on_failed is not None:
            self._on_failed = None
            on_failed(reason)

    def close(self) -> None:
        """Nothing to do: the client's connection ends by itself and gives this one up."""
