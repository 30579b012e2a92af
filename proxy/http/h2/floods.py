"""Floods: limits what a peer may cause by frames that are cheap to send and expensive to answer (RFC 9113 section 10.5).

O(1) per frame, and no memory of which frames they were. Real progress pays
for them (octets moved, messages of the other side, finished exchanges), each at its
rate, so that one octet pays nothing; so does time. Credit is not saved up.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Clock
from proxy.http.h2.stream.backlog import Backlog
from proxy.http.h2.stream.flow import Flow

_RESET_COST: Final = 3
"""One of them comes back at once, since the stream has ended."""


class Quota:
    """How much of one kind of work a peer may ask for within FLOOD_PERIOD_S beyond what its progress pays."""

    __slots__ = ("spent", "_limit", "_reason", "_since", "_progress")

    def __init__(self, limit: int, reason: Reason, now: float, progress: int = 0) -> None:
        self.spent = 0
        """What was charged and not paid yet; progress reduces it."""
        self._limit = limit
        self._reason = reason
        self._since = now
        self._progress = progress

    def settle(self, progress: int) -> None:
        """`progress` is a sum over the life of the connection; less than before is work to be paid for."""
        self.spent = max(0, self.spent + self._progress - progress)
        self._progress = progress

    def charge(self, cost: int, now: float) -> None:
        """Raises ProtocolError with the quota's reason when the limit is passed."""
        if now - self._since > limits.FLOOD_PERIOD_S:
            self._since = now
            self.spent = 0
        self.spent += cost
        if self.spent > self._limit:
            raise ProtocolError(self._reason.value, self._reason)


class Floods:
    """What the peer of one connection has asked for, and what was done for it."""

    __slots__ = ("sent_messages", "ended_streams", "_control", "_resets", "_max_resets", "_flow", "_backlog", "_clock")

    def __init__(self, flow: Flow, backlog: Backlog, clock: Clock, max_early_resets: int) -> None:
        self.sent_messages = 0
        """Pieces of bodies that left as the other side sent them."""
        self.ended_streams = 0
        """Streams that ended, however they did. They are counted here, and taken into account only when the peer is
        charged.
        """
        self._control: Quota | None = None
        """The quota of frames that carry nothing; made when the first comes."""
        self._resets: Quota | None = None
        """The quota of streams that end early by the peer's doing; made when the first does."""
        self._max_resets = max_early_resets
        self._flow = flow
        self._backlog = backlog
        self._clock = clock

    def charge(self, cost: int) -> None:
        """The peer sent a frame that carries nothing and wants an answer. It costs more while it does not read our answers."""
        self.charge_silent(cost if self._flow.is_writable else cost * 10)

    def charge_silent(self, cost: int) -> None:
        """The peer sent a frame that carries nothing and needs no answer. Progress is taken into account only here, so that
        making progress costs nothing."""
        now = self._clock()
        quota = self._control
        if quota is None:
            quota = self._control = Quota(limits.CONTROL_FRAMES, Reason.CONTROL_FLOOD, now, self._progress())
        quota.settle(self._progress())
        quota.charge(cost, now)

    def charge_reset(self) -> None:
        """A stream ended early by the peer's doing: it was reset without need, or the peer made us reset it."""
        now = self._clock()
        resets = self._resets
        if resets is None:
            resets = self._resets = Quota(2 * self._max_resets, Reason.RESET_FLOOD, now, self.ended_streams)
        resets.settle(self.ended_streams)
        resets.charge(_RESET_COST, now)

    def spent(self) -> int:
        """How much of the limit for frames that carry nothing is used up."""
        return 0 if self._control is None else self._control.spent

    def _progress(self) -> int:
        """All that was done for this peer so far, in units of the quota."""
        return (
            self._flow.moved_bytes() // limits.PROGRESS_BYTES
            + self.sent_messages * limits.PROGRESS_MESSAGE
            + self.ended_streams * limits.PROGRESS_STREAM
            - self._backlog.frames
        )
