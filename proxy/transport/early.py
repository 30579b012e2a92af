"""Early: a connection to a server, made for a client that has not said anything yet.

Some protocols let the server speak first (MySQL, SMTP, FTP, SSH), so a proxy that waits for the client's first bytes
waits in vain. After a short silence the server is dialled as for opaque bytes, and whoever speaks first decides: the
server's word makes the connection opaque; a client that turns out to speak HTTP is served as HTTP, and the idle
connection is closed. Nothing is sent over it that the client did not say. A server that ends it without a word has
decided nothing: the client is waited for as if nobody had been dialled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from proxy.core import limits
from proxy.core.codec import Codec, Wire
from proxy.core.reactor import Clock
from proxy.core.reason import Reason
from proxy.transport.relay import Relay, Side


class GivesUp(Protocol):
    def give_up(self) -> None:
        """Close what was dialled, unless it was joined to its client. Idempotent."""


class EarlyDials:
    """The early connections of one side that nobody has spoken on, bounded by `limits.EARLY_DIALS`."""

    __slots__ = ("_clock", "_since")

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._since: Final[dict[GivesUp, float]] = {}
        """When each was begun, the oldest first."""

    def __len__(self) -> int:
        return len(self._since)

    def admit(self, one: GivesUp) -> bool:
        """May it be dialled? If there are too many, the oldest makes room, once it had `limits.EARLY_S`."""
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
        """It was joined to its client, or is over. Idempotent."""
        self._since.pop(one, None)


class EarlyCodec(Codec):
    """The codec of an early connection until it is joined to its client's."""

    __slots__ = ("_wire", "_on_spoke", "_on_over", "_side")

    def __init__(self, wire: Wire, on_spoke: Callable[[], None], on_over: Callable[[Reason], None]) -> None:
        """`on_spoke`: the server has spoken first, and `join` is due within the call. `on_over`: the connection is gone, or
        could not be made."""
        self._wire = wire
        self._on_spoke = on_spoke
        self._on_over = on_over
        self._side: Side | None = None

    def join(self, relay: Relay) -> None:
        """It is the dialled connection of this relay from now on."""
        side = self._side = relay.dial(self._wire)
        self._wire.hand_over(side)

    def give_up(self) -> None:
        if self._side is None:
            self._wire.abort(Reason.COMPLETE)

    # ---- Codec

    def feed(self, data: bytes) -> None:
        self._on_spoke()
        side = self._joined()
        if side is not None:
            side.feed(data)
        else:
            self._wire.abort(Reason.COMPLETE)

    def _joined(self) -> Side | None:  # asked anew after a call: mypyc holds on to what it saw of an attribute before
        return self._side

    def eof(self) -> None:
        self._wire.abort(Reason.COMPLETE)

    def writable(self, is_writable: bool) -> None:
        """Nothing is written yet."""

    def lost(self, reason: Reason) -> None:
        self._on_over(reason)

    def close(self) -> None:
        """Its client's connection, which ends by itself, gives it up."""
