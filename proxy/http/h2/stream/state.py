"""The states of a stream (RFC 9113 section 5.1), and what each frame means in each state: one table for both roles.

A stream that exists has one of the first four states. If a frame names one that does not exist, its number decides: never
used (IDLE), over (CLOSED), skipped by the peer and so closed (SKIPPED, section 5.1.1), or reset by us a short while ago,
so that the peer may not have known when it sent the frame (RESET). A client does not remember which streams it reset; all
streams that are over count as RESET there.
"""

from __future__ import annotations

from typing import Final

from proxy.core.limits import RESET_IDS

OPEN: Final = 0
HALF_CLOSED_LOCAL: Final = 1
"""Our message is complete."""
HALF_CLOSED_REMOTE: Final = 2
"""The peer's message is complete."""
CLOSED: Final = 3
IDLE: Final = 4
SKIPPED: Final = 5
RESET: Final = 6
NAMES: Final = ("open", "half-closed (local)", "half-closed (remote)", "closed", "idle", "skipped", "reset")

# Rows are bytes: a compiled module indexes them without making an object.

AFTER_SENT_END: Final = bytes((HALF_CLOSED_LOCAL, HALF_CLOSED_LOCAL, CLOSED, CLOSED))
AFTER_RECEIVED_END: Final = bytes((HALF_CLOSED_REMOTE, CLOSED, HALF_CLOSED_REMOTE, CLOSED))

DELIVER: Final = 0
"""To the stream."""
BEGIN: Final = 1
"""It opens a stream (at servers only: a client disables push, so no peer opens streams to it)."""
IGNORE: Final = 2
RESET_STREAM: Final = 3
"""A stream error of type STREAM_CLOSED."""
STREAM_IS_OVER: Final = 4
"""A connection error of type STREAM_CLOSED: the peer knew that the stream was over when it sent this."""
NEVER_OPENED: Final = 5
"""A connection error of type PROTOCOL_ERROR."""

# In the order of the states:         open     local    remote        closed          idle          skipped       reset
ON_DATA: Final = bytes((DELIVER, DELIVER, RESET_STREAM, RESET_STREAM, NEVER_OPENED, RESET_STREAM, IGNORE))
ON_HEADERS: Final = bytes((DELIVER, DELIVER, RESET_STREAM, STREAM_IS_OVER, BEGIN, NEVER_OPENED, IGNORE))
ON_OTHERS: Final = bytes((DELIVER, DELIVER, DELIVER, IGNORE, NEVER_OPENED, IGNORE, IGNORE))
"""RST_STREAM and WINDOW_UPDATE. PRIORITY may name any stream."""


class StreamIds:
    """The stream numbers that the client side has used, and which of those streams we reset."""

    __slots__ = ("last", "_remembers", "_reset", "_skipped_from", "_skipped_to")

    def __init__(self, is_client: bool) -> None:
        self.last = -1 if is_client else 0
        """The highest number that the client side used."""
        self._remembers = not is_client
        self._reset: dict[int, None] | None = None
        """Streams that we reset, oldest first."""
        self._skipped_from = 0
        self._skipped_to = 0
        """The last numbers, exclusive, between which the client skipped some."""

    def use(self, stream_id: int) -> None:
        """The client opened this stream, which is beyond the last."""
        if stream_id > self.last + 2:
            self._skipped_from = self.last
            self._skipped_to = stream_id
        self.last = stream_id

    def note_reset(self, stream_id: int) -> None:
        """We reset this stream, and frames of it may still come."""
        if not self._remembers:
            return
        ids = self._reset
        if ids is None:
            ids = self._reset = {}
        elif len(ids) >= RESET_IDS:
            del ids[next(iter(ids))]
        ids[stream_id] = None

    def state_of(self, stream_id: int) -> int:
        """The state of a stream that does not exist."""
        if not stream_id & 1 or stream_id > self.last:
            return IDLE
        if not self._remembers or (self._reset is not None and stream_id in self._reset):
            return RESET
        return SKIPPED if self._skipped_from < stream_id < self._skipped_to else CLOSED
