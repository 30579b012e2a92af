"""CONNECT to us: from the refusal or the 200 to the bytes of the tunnel (docs/design.md, section 6).

The client reads nothing of a tunnel whose destination is not known yet,
and we read no more of it than tells us that it is still there. After the 200 its bytes are treated like those of a
redirected connection: detected, routed, balanced.
"""

from __future__ import annotations

import logging
from typing import Final

from proxy.core import limits
from proxy.core.addr import Addr
from proxy.core.codec import Wire, hand_over
from proxy.core.reason import Reason
from proxy.core.timers import Timer
from proxy.core.watch import Absent
from proxy.http.linger import Linger
from proxy.outbound.discover import Destination
from proxy.outbound.given import Given
from proxy.outbound.http.rescue import NOT_DISCOVERED, NOT_HEARD_OF, Failure
from proxy.outbound.protocol import Protocols
from proxy.policy.client import ClientPolicy

_log: Final = logging.getLogger(__name__)

_STATUS_LINES: Final = {400: b"400 Bad Request", 403: b"403 Forbidden", 504: b"504 Gateway Timeout"}


class RefusedError(Exception):
    """The client asked for what it may not have, or for nothing that can be found; the text says so."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure: Final = failure


class Connecting:
    """The codec of a CONNECT while its destination is being discovered; then the wire is that destination's."""

    __slots__ = ("_wire", "_protocols", "_destination", "_held", "_has_eof", "_is_over", "_deadline")

    def __init__(self, wire: Wire, protocols: Protocols, destination: Destination, held: bytes) -> None:
        self._wire = wire
        self._protocols = protocols
        self._destination = destination
        self._held = held
        self._has_eof = False
        self._is_over = False
        self._deadline: Timer = protocols.given.reactor.wheel.after(limits.DISCOVERY_S, self._not_heard_of)

    def begin(self) -> None:
        if self._held:
            self._wire.pause_reading()
        self._destination.when_known(self._known)

    def feed(self, data: bytes) -> None:
        self._held += data
        self._wire.pause_reading()

    def eof(self) -> None:
        self._has_eof = True

    def writable(self, is_writable: bool) -> None:
        """Nothing is written before the destination is known."""

    def lost(self, reason: Reason) -> None:
        self._over()
        self._destination.forget(self._known)

    def close(self) -> None:
        """It was asked for: it is answered, or its deadline passes."""

    def _not_heard_of(self) -> None:
        """Nobody says what the destination is."""
        self._over()
        self._destination.forget(self._known)
        self._wire.resume_reading()
        refuse_connect(self._wire, self._protocols.given, RefusedError(NOT_HEARD_OF, not_heard_of(self._destination)))

    def _over(self) -> None:
        self._is_over = True
        self._deadline.cancel()

    def _known(self) -> None:
        if self._is_over:
            return
        self._over()
        wire, destination = self._wire, self._destination
        wire.resume_reading()
        policy = destination.effective.value
        if not isinstance(policy, ClientPolicy):
            refuse_connect(wire, self._protocols.given, RefusedError(NOT_DISCOVERED, not_served(destination)))
            return
        wire.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        target = destination.target
        label = target if isinstance(target, Addr) else Addr("0.0.0.0", int(target.rpartition(":")[2]))
        codec = self._protocols.codec(wire, destination, label)
        hand_over(wire, codec, self._held, self._has_eof)


def not_served(destination: Destination) -> str:
    """Why a request for it goes nowhere."""
    value = destination.effective.value
    reason = value.reason if isinstance(value, Absent) else "unknown"
    return f"{destination.logical} {'cannot be resolved' if destination.is_outside else 'is not served by the mesh'}: {reason}"


def not_heard_of(destination: Destination) -> str:
    """Who did not answer in time."""
    silent = "the name servers" if destination.is_outside else "the control plane"
    return f"{destination.logical} is not known: {silent} did not answer in {limits.DISCOVERY_S:g}s"


def refuse_connect(wire: Wire, given: Given, error: RefusedError) -> None:
    """Answer a CONNECT and end its connection."""
    given.registry.faults("outbound").count_as("connect_refused")
    text = str(error)
    said = text if text.isascii() and text.isprintable() else "unexpected error"
    status = _STATUS_LINES.get(error.failure.status, b"502 Bad Gateway")
    _log.info("CONNECT refused: %s", text)
    wire.write(
        b"HTTP/1.1 %b\r\nl5d-proxy-error: %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        % (status, said.encode())
    )
    Linger(wire, given.reactor.wheel, True)
