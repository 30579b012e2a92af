"""Backlog: what one HTTP/2 connection has to send and cannot, because a window is empty or the socket takes no more.

Three things are bounded here, however many streams a peer opens. Octets: beyond
BACKLOG_BYTES no further stream may read from its other side until some octets
have left. Streams: beyond twice that much no new stream is accepted at all.
Work: one turn sends one share of it; the rest is sent in later turns.

A complete message that does not move at all is given up after STALL_S, because its client may never read it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer, Wheel
from proxy.http.h2.stream.flow import Flow

STREAM_BYTES: Final = 1024
"""What a stream that waits here costs beside its octets."""
_READ_BYTES: Final = 262144
"""What a stream may add at once: one read of its other side's socket."""


class Sender:
    """A stream, as far as a backlog knows it."""

    __slots__ = ("send_window", "is_stalled")

    send_window: int
    is_stalled: bool
    """Whether nothing of its complete message has left since the last look."""

    def has_unsent(self) -> bool:
        raise NotImplementedError

    def is_complete(self) -> bool:
        """Whether all of our message is known, so that only the peer keeps it from leaving."""
        raise NotImplementedError

    def has_more_to_come(self) -> bool:
        """Whether it is neither closed nor ended on our side."""
        raise NotImplementedError

    def pump(self) -> bool:
        """Send what may be sent; True if nothing is left."""
        raise NotImplementedError

    def tell_blocked(self) -> None:
        """Pause its other side."""
        raise NotImplementedError

    def tell_ready(self) -> None:
        """Resume its other side."""
        raise NotImplementedError

    def fail(self, reason: Reason) -> None:
        """End the stream, because it cannot go on."""
        raise NotImplementedError


class Backlog:
    __slots__ = ("waiting", "held_bytes", "frames", "silenced", "_flow", "_streams", "_wheel", "_timer")

    def __init__(self, flow: Flow, streams: Mapping[int, Sender], wheel: Wheel | None) -> None:
        """`streams` are all of the connection's, which adds and removes them."""
        self.waiting: OrderedDict[Sender, None] = OrderedDict()
        """Streams that only the connection's window or the socket holds up, longest waiting first."""
        self.held_bytes = 0
        """The unsent octets of all streams, plus STREAM_BYTES for each stream that has any."""
        self.frames = 0
        """DATA frames that had to wait before they were sent: extra work that the peer's small windows caused."""
        self.silenced: dict[Sender, None] = {}
        """Streams whose other side is paused because too much is held already; the first to be paused comes first."""
        self._flow = flow
        self._streams = streams
        self._wheel = wheel
        self._timer: Timer | None = None

    def is_over(self) -> bool:
        """Whether no further stream may be taken."""
        return self.held_bytes > 2 * limits.BACKLOG_BYTES

    def hold(self, size: int) -> None:
        """`size` more octets wait. When that is too much, the other sides of all streams stay paused until there is room."""
        held = self.held_bytes = self.held_bytes + size
        if held > limits.BACKLOG_BYTES and not self.silenced:
            for stream in self._streams.values():
                if not stream.has_unsent():
                    self.silence(stream)

    def silence(self, stream: Sender) -> None:
        """Pause its other side until there is room for what would come."""
        if stream not in self.silenced:
            self.silenced[stream] = None
            stream.tell_blocked()

    def release(self, size: int) -> None:
        """`size` octets were sent, or thrown away."""
        held = self.held_bytes = self.held_bytes - size
        silenced = self.silenced
        # Only as many as there is room for, each counted with a whole read: all at once would fill it at one go.
        while silenced and held + _READ_BYTES <= limits.BACKLOG_BYTES:
            held += _READ_BYTES
            stream = next(iter(silenced))
            del silenced[stream]
            stream.tell_ready()

    def wait(self, stream: Sender) -> None:
        """Something of this stream did not leave at once."""
        if stream.send_window > 0:
            self.waiting[stream] = None
        self._watch()

    def forget(self, stream: Sender) -> None:
        """The stream is over."""
        self.waiting.pop(stream, None)
        self.silenced.pop(stream, None)

    def clear(self) -> None:
        """The connection is over."""
        self.waiting.clear()
        self.silenced.clear()
        self._wheel = None
        if self._timer is not None:
            self._timer.cancel()

    def pump(self, stream: Sender) -> None:
        """Send what may be sent of this stream now."""
        if stream.pump():
            self.waiting.pop(stream, None)
            if self.held_bytes > limits.BACKLOG_BYTES and stream.has_more_to_come():
                self.silenced[stream] = None  # it was blocked, and stays so
            else:
                stream.tell_ready()
        # Only the connection holds it up. One that its own window holds up is woken by its own WINDOW_UPDATE.
        elif stream.send_window > 0:
            self.waiting[stream] = None
        else:
            self.waiting.pop(stream, None)

    def pump_waiting(self) -> bool:
        """Send data of the waiting streams, in turn. False if there is more than one share; the rest is for a later turn."""
        waiting = self.waiting
        flow = self._flow
        ends_at = self.frames + limits.TURN_FRAMES
        steps = limits.TURN_FRAMES
        while waiting and flow.send_window > 0 and flow.is_writable:
            if self.frames >= ends_at or not steps:
                return False
            # Streams without anything to send cost a step too, or a flood of those would not end.
            steps -= 1
            self.pump(waiting.popitem(False)[0])
        return True

    # ---- what does not move

    def _watch(self) -> None:
        wheel = self._wheel
        if wheel is not None and (self._timer is None or not self._timer.is_armed):
            self._timer = wheel.after(limits.STALL_S / 2, self._look)

    def _look(self) -> None:
        """Runs twice in every STALL_S: a message that has not moved since the last look is given up.

        Only messages that are complete: a stream whose endpoint still sends is held back as long as its client likes,
        with no more than a window's worth in memory, as without a proxy.
        """
        has_unsent = False
        for stream in list(self._streams.values()):
            if not stream.has_unsent():
                continue
            has_unsent = True
            if stream.is_complete() and stream.is_stalled:
                stream.fail(Reason.STALLED)
            else:
                stream.is_stalled = stream.is_complete()
        if has_unsent:
            self._watch()
