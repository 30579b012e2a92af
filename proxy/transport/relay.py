"""Opaque TCP: bytes both ways between an accepted and a dialled connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from proxy.core.codec import Codec, Wire
from proxy.core.reason import Reason


class RelayEnd(NamedTuple):
    reason: Reason
    sent_bytes: int
    """From the accepted connection to the dialled one."""
    received_bytes: int


class Relay:
    """`relay = Relay(wire, on_ended)`; `wire.hand_over(relay.accepted)`; `relay.accepted.feed(first_bytes)`;
    `dial_plain(reactor, addr, relay.dial, options)` (or dial_tls)."""

    accepted: Codec

    def __init__(self, wire: Wire, on_ended: Callable[[RelayEnd], None]) -> None:
        raise NotImplementedError

    def dial(self, wire: Wire) -> Codec:
        """The MakeCodec of the dialled side."""
        raise NotImplementedError

    def abort(self, reason: Reason) -> None: ...

    def close(self) -> None:
        """Graceful shutdown leaves it running."""
