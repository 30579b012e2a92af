"""Opaque TCP: bytes both ways between an accepted and a dialled connection, each plain or TLS.

Each direction ends on its own; a reset, a truncation or a failed connect
on one side is a reset on the other, never a clean end. Neither side reads
faster than the other takes, so that each direction holds one watermark and one
read at most. `on_ended` is called once, when both connections are gone.
A relay of which one side has ended and the other says nothing is not kept for
ever: without an end it would outlive a host that has vanished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from proxy.core.codec import Codec, Wire
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.stall import Stall
from proxy.core.loop.timers import Wheel
from proxy.transport.splice import SPLICE_AFTER_BYTES, Splice, splice


class RelayEnd(NamedTuple):
    reason: Reason
    """COMPLETE, or what failed first on either connection."""
    sent_bytes: int
    """Bytes from the accepted connection to the dialled one."""
    received_bytes: int


class Relay:
    """`relay = Relay(wire, on_ended)`; `wire.hand_over(relay.accepted)`; `dial_plain(reactor, addr, relay.dial, options)`
    (or dial_tls); then `relay.accepted.feed(first_bytes)`, and `eof()` if the client has ended already."""

    __slots__ = ("accepted", "dialled", "_on_ended", "_wheel", "_half_closed")

    def __init__(self, wire: Wire, on_ended: Callable[[RelayEnd], None], wheel: Wheel | None = None) -> None:
        """Without a wheel a half-closed relay has no limit."""
        self.accepted = Side(wire, self._on_side_lost, self._on_side_ended)
        self.dialled: Side | None = None
        self._on_ended: Callable[[RelayEnd], None] | None = on_ended
        self._wheel = wheel
        self._half_closed: Stall | None = None

    def dial(self, wire: Wire) -> Side:
        """The MakeCodec of the dialled side."""
        dialled = Side(wire, self._on_side_lost, self._on_side_ended)
        self.dialled = dialled
        dialled.join(self.accepted)
        self.accepted.join(dialled)
        if self.accepted.lost_for is not None:
            # The client has gone while the other connection was being made.
            wire.abort(Reason.CANCELLED)
        return dialled

    def abort(self, reason: Reason) -> None:
        """Reset both connections now (policy no longer allows them, or the grace period is over)."""
        for side in (self.accepted, self.dialled):
            if side is not None:
                side.break_off(reason)

    def refuse(self, reason: Reason) -> None:
        """End the accepted connection before anything was dialled, as if a process closed its socket: a client whose
        connect() has not returned yet sees the connection end, not its connect fail.
        """
        self.accepted.why = reason
        self.accepted.wire.abort(reason)

    def part(self) -> None:
        """Release what points back here, because this relay is not needed."""
        self._on_ended = None
        self._release_stall()
        self.accepted.part()

    def close(self) -> None:
        """Nothing to do: only the two ends know when a relay may end, so graceful shutdown leaves it running."""

    def _on_side_ended(self) -> None:
        wheel = self._wheel
        if wheel is not None and self._half_closed is None:
            self._half_closed = Stall(wheel, self._relayed_bytes, self._on_stalled)

    def _relayed_bytes(self) -> int:
        dialled = self.dialled
        return self.accepted.received_bytes + (0 if dialled is None else dialled.received_bytes)

    def _on_stalled(self) -> None:
        self.abort(Reason.STALLED)

    def _release_stall(self) -> None:
        stall = self._half_closed
        if stall is not None:
            self._half_closed = None
            stall.cancel()

    def _on_side_lost(self) -> None:
        accepted, dialled = self.accepted, self.dialled
        if accepted.lost_for is None or (dialled is not None and dialled.lost_for is None):
            return
        on_ended = self._on_ended
        if on_ended is None:
            return
        self._on_ended = None
        self._release_stall()
        # A failure on one side aborts the other with the same reason, unless the other had ended cleanly.
        reason = accepted.why if dialled is None or accepted.why is not Reason.COMPLETE else dialled.why
        accepted.part()
        if dialled is not None:
            dialled.part()
        try:
            on_ended(RelayEnd(reason, accepted.received_bytes, 0 if dialled is None else dialled.received_bytes))
        except Exception:
            report_fault()


class Side(Codec):
    """The codec of one of a relay's two connections: what it receives it writes to the other."""

    __slots__ = (
        "received_bytes",
        "lost_for",
        "why",
        "wire",
        "_other",
        "_held",
        "_splice",
        "_splice_at",
        "_has_eof",
        "_on_lost",
        "_on_eof",
    )

    def __init__(self, wire: Wire, on_lost: Callable[[], None], on_eof: Callable[[], None]) -> None:
        self.wire = wire
        self._other: Side | None = None
        self._held: list[bytes] = []
        self._splice: Splice | None = None
        self._splice_at = SPLICE_AFTER_BYTES
        self._has_eof = False
        self._on_lost = on_lost
        self._on_eof = on_eof
        self.received_bytes = 0
        self.lost_for: Reason | None = None
        self.why = Reason.COMPLETE

    def join(self, other: Side) -> None:
        self._other = other
        if self._held:
            # What is held goes out before what may come next.
            for data in self._held:
                other.wire.write(data)
            self._held.clear()
            self.wire.resume_reading()
        if self._has_eof:
            other.send_end()

    def part(self) -> None:
        """Both are lost: release the other side and the relay, so that all are freed at once."""
        self._other = None
        self._on_lost = self._on_eof = _ignore

    # ---- of the other side

    def send_end(self) -> None:
        self.wire.end()

    def let_read(self, may_read: bool) -> None:
        if self._splice is not None:
            return
        if may_read:
            self.wire.resume_reading()
        else:
            self.wire.pause_reading()

    def stop_splice(self) -> None:
        splice_ = self._splice
        if splice_ is not None:
            splice_.close()

    def break_off(self, reason: Reason) -> None:
        if self.lost_for is None:
            self.why = reason
            self.wire.abort(Reason.CONNECTION_RESET)

    # ---- Codec

    def feed(self, data: bytes) -> None:
        self.received_bytes += len(data)
        other = self._other
        if other is not None:
            other.wire.write(data)
            if self.received_bytes >= self._splice_at:
                self._splice = splice(self.wire, other.wire, self._on_moved, self._on_idle)
        else:
            self._held.append(data)
            self.wire.pause_reading()

    def _on_moved(self, count: int) -> None:
        self.received_bytes += count

    def _on_idle(self) -> None:
        self._splice = None
        self._splice_at = self.received_bytes + SPLICE_AFTER_BYTES

    def eof(self) -> None:
        self._has_eof = True
        other = self._other
        if other is not None:
            other.send_end()
        self._on_eof()

    def writable(self, is_writable: bool) -> None:
        other = self._other
        if other is not None:
            other.let_read(is_writable)

    def lost(self, reason: Reason) -> None:
        self.lost_for = reason
        other = self._other
        self.stop_splice()
        if other is not None:
            other.stop_splice()
        # Only the first failure counts: the end of the other connection is our own doing.
        if reason is not Reason.COMPLETE and self.why is Reason.COMPLETE:
            self.why = reason
            if other is not None:
                other.break_off(reason)
        self._on_lost()

    def close(self) -> None:
        """See Relay.close."""


def _ignore() -> None:
    """Replaces a callback that has been called."""
