"""Early: a connection to a server, made for a client that has not sent anything yet.

Some protocols let the server speak first (MySQL, SMTP, FTP, SSH), so a proxy that waits for the client's first bytes
waits in vain. After a short silence the server is dialled as for opaque bytes, and the side that speaks first decides: if
it is the server, the connection is opaque; a client that turns out to speak HTTP is served as HTTP, and the early
connection is closed. Nothing is sent over it that the client did not send. If the server closes it without sending
anything, nothing is decided, and the proxy waits for the client as if it had not dialled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from proxy.core import limits
from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Clock
from proxy.transport.relay import Relay, Side


class GivesUp(Protocol):
    def give_up(self) -> None:
        """Close the dialled connection, unless it was joined to its client. Idempotent."""


class EarlyDials:
    """The early connections of one side on which neither end has spoken yet, bounded by `limits.EARLY_DIALS`."""

    __slots__ = ("_clock", "_since")

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._since: Final[dict[GivesUp, float]] = {}
        """When each was begun, the oldest first."""

    def __len__(self) -> int:
        return len(self._since)

    def admit(self, one: GivesUp) -> bool:
        """Whether it may be dialled. If there are too many, the oldest is given up, once it is older than `limits.EARLY_S`."""
        now = self._clock()
        if len(self._since) >= limits.EARLY_DIALS:
            oldest, began_at = next(iter(self._since.items()))
            if now - began_at < limits.EARLY_S:
                return False
            oldest.give_up()
            self._since.pop(oldest, None)
        self._since[one] = now
        return True

    def leave(self, one: GivesUp) -> None:
        """Called when it was joined to its client, or is over. Idempotent."""
        self._since.pop(one, None)


class EarlyCodec(Codec):
    """The codec of an early connection until it is joined to its client's."""

    __slots__ = ("wire", "_on_spoke", "_on_over", "_side")

    def __init__(self, wire: Wire, on_spoke: Callable[[], None], on_over: Callable[[Reason], None]) -> None:
        """`on_spoke` is called when the server has spoken first, and must call `join`. `on_over` is called when the connection
        is gone or could not be made."""
        self.wire = wire
        self._on_spoke = on_spoke
        self._on_over = on_over
        self._side: Side | None = None

    def join(self, relay: Relay) -> None:
        """Make it the dialled connection of this relay."""
        side = self._side = relay.dial(self.wire)
        self.wire.hand_over(side)

    def give_up(self) -> None:
        if self._side is None:
            self.wire.abort(Reason.COMPLETE)

    # ---- Codec

    def feed(self, data: bytes) -> None:
        self._on_spoke()
        side = self._joined()
        if side is not None:
            side.feed(data)
        else:
            self.wire.abort(Reason.COMPLETE)

    def _joined(self) -> Side | None:  # a method, because mypyc assumes that an attribute is unchanged after a call
        return self._side

    def eof(self) -> None:
        self.wire.abort(Reason.COMPLETE)

    def writable(self, is_writable: bool) -> None:
        """Nothing to do: nothing is written yet."""

    def lost(self, reason: Reason) -> None:
        self._on_over(reason)

    def close(self) -> None:
        """Nothing to do: the client's connection ends by itself and gives this one up."""
