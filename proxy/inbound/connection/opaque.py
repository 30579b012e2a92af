"""Opaque: a connection forwarded to the app as bytes, both ways.

It is authorized when it begins and again at each update of its port's policy.
The end of one side is passed on alone (half-close). Only Drain waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.codec import CLOSED, Codec, Wire
from proxy.core.connection.dial import DialOptions
from proxy.core.failure.reason import Reason
from proxy.inbound import labels
from proxy.inbound.connection.arrival import Arrival
from proxy.inbound.connection.authorize import ConnectionGuard
from proxy.inbound.runtime import IO, UNEXPECTED
from proxy.transport.detection.early import EarlyCodec
from proxy.transport.plain import dial_plain
from proxy.transport.relay import Relay, RelayEnd

_FAULTS: Final = frozenset((Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT, Reason.CONNECTION_RESET))


class Forwarding:
    """One forwarded connection."""

    __slots__ = ("_arrival", "_guard", "_relay", "_failure")

    def __init__(self, arrival: Arrival, wire: Wire) -> None:
        self._arrival: Final = arrival
        self._guard: Final = ConnectionGuard(arrival.arrived(), arrival.runtime.registry)
        self._relay: Final = Relay(wire, self._ended, arrival.runtime.reactor.wheel)
        self._failure = ""

    def begin(self) -> Codec | None:
        """Dial the app; None if this client may not."""
        if not self._may_begin():
            return None
        dial_app(self._arrival, self._relay.dial, self.dial_failed)
        return self._relay.accepted

    def join(self, early: EarlyCodec) -> Codec | None:
        """The same over a connection to the app that was dialled before."""
        if not self._may_begin():
            return None
        early.join(self._relay)
        return self._relay.accepted

    def _may_begin(self) -> bool:
        arrival = self._arrival
        if not self._guard.admit(self._revoked):
            return False
        if arrival.runtime.listener_at(arrival.target):
            self._guard.end()
            arrival.fail(UNEXPECTED, f"inbound connection must not target port {arrival.target.port}")
            return False
        return True

    def dial_failed(self, text: str) -> None:
        self._failure = text

    def _revoked(self) -> None:
        self._relay.abort(Reason.CANCELLED)

    def _ended(self, end: RelayEnd) -> None:
        self._guard.end()
        if self._failure:
            error = UNEXPECTED if end.reason is Reason.CONNECT_TIMEOUT else IO
            self._arrival.fail(error, f"app at {self._arrival.target}: {self._failure}")
        elif end.reason in _FAULTS:
            self._arrival.fail(IO, end.reason.value)


def dial_app(arrival: Arrival, make_codec: Callable[[Wire], Codec], on_failed: Callable[[str], None]) -> None:
    """Connect to where the arrival goes in this workload."""
    runtime = arrival.runtime
    config = runtime.config
    options = DialOptions(
        config.inbound_connect_timeout_s,
        config.inbound_connect_keepalive_s,
        config.inbound_connect_user_timeout_s,
        runtime.registry.meter(labels.APP),
        on_failed=on_failed,
        made=runtime.here.to_apps,
    )
    dial_plain(runtime.reactor, arrival.target, make_codec, options)


def forward(arrival: Arrival, wire: Wire) -> Codec:
    """The codec of a connection whose bytes go to the app; it is closed at once if its client may not."""
    early = arrival.early
    is_dialled = early is not None and early.is_open
    codec = early.settle(wire) if early is not None and is_dialled else Forwarding(arrival, wire).begin()
    if codec is None:
        wire.abort(Reason.CANCELLED)
        return CLOSED
    return codec
