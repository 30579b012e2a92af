"""Backlog: what one HTTP/2 connection has to send and cannot, for lack of a window or of a socket that takes it.

Three things are bounded here, however many streams a peer opens. Octets: beyond
BACKLOG_BYTES no further stream is let read from its other side until some of
them have left. Streams: beyond twice that much no further one is taken at all.
Work: what one turn sends of it is one share; the rest asks for another turn.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from proxy.core import limits

if TYPE_CHECKING:
    from proxy.http.h2.connection import H2Connection
    from proxy.http.h2.stream import H2Stream

STREAM_BYTES: Final = 1024
"""What a stream that waits here costs beside its octets."""
_READ_BYTES: Final = 262144
"""What a stream may add at once: one read of its other side's socket."""


class Backlog:
    __slots__ = ("waiting", "held_bytes", "frames", "silenced")

    def __init__(self) -> None:
        self.waiting: OrderedDict[H2Stream, None] = OrderedDict()
        """Streams that only the connection's window or the socket holds up, longest waiting first."""
        self.held_bytes = 0
        """Of all streams: their unsent octets, and STREAM_BYTES for each that has any."""
        self.frames = 0
        """DATA frames that had to wait before they were sent: work that the peer's windows made of what was one piece."""
        self.silenced: dict[H2Stream, None] = {}
        """Streams whose other side is not read from, since too much is held already; in order of asking."""

    def is_over(self) -> bool:
        """No further stream may be taken."""
        return self.held_bytes > 2 * limits.BACKLOG_BYTES

    def hold(self, connection: H2Connection, size: int) -> None:
        """So much more waits. When that is too much, nobody else's other side is read from until there is room."""
        held = self.held_bytes = self.held_bytes + size
        if held > limits.BACKLOG_BYTES and not self.silenced:
            for stream in connection.streams.values():
                if not stream.has_unsent():
                    self.silence(stream)

    def silence(self, stream: H2Stream) -> None:
        """Its other side is not read from before there is room for what would come."""
        if stream not in self.silenced:
            self.silenced[stream] = None
            stream.tell_blocked()

    def let_go(self, size: int) -> None:
        """So much was sent, or thrown away."""
        held = self.held_bytes = self.held_bytes - size
        silenced = self.silenced
        while silenced and held + _READ_BYTES <= limits.BACKLOG_BYTES:
            held += _READ_BYTES
            stream = next(iter(silenced))
            del silenced[stream]
            stream.tell_ready()

    def forget(self, stream: H2Stream) -> None:
        """The stream is over."""
        self.waiting.pop(stream, None)
        self.silenced.pop(stream, None)

    def clear(self) -> None:
        self.waiting.clear()
        self.silenced.clear()

    def pump(self, stream: H2Stream) -> None:
        """Send of this stream what may be sent now."""
        if stream.pump():
            self.waiting.pop(stream, None)
            if self.held_bytes > limits.BACKLOG_BYTES and stream.has_more_to_come():
                self.silenced[stream] = None  # it was blocked, and stays so
            else:
                stream.tell_ready()
        elif stream.send_window > 0:
            self.waiting[stream] = None
        else:
            self.waiting.pop(stream, None)

    def pump_waiting(self, connection: H2Connection) -> None:
        """Send of the streams that wait, in turn; what is more than a share goes on in a later turn."""
        waiting = self.waiting
        ends_at = self.frames + limits.TURN_FRAMES
        steps = limits.TURN_FRAMES
        while waiting and connection.send_window > 0 and connection.is_writable:
            if self.frames >= ends_at or not steps:
                connection.wait_turn()
                return
            steps -= 1
            self.pump(waiting.popitem(False)[0])
