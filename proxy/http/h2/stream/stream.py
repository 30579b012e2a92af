"""H2Stream: what both roles share of one stream: its state, its windows, its unsent data.

Data leaves in order. What the windows or the socket do not let out waits in a
queue. The exchange is paused when the queue begins and resumed when it is empty,
so the queue is never longer than the other side's window, or than one read of
its socket. The connection's Backlog bounds all of its queues together.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.ending.endings import code_of
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.frame import END_STREAM, PADDED, header_struct
from proxy.http.h2.stream.backlog import STREAM_BYTES, Sender
from proxy.http.h2.stream.carrier import Carrier
from proxy.http.h2.stream.flow import Credit, overrun
from proxy.http.h2.stream.state import (
    AFTER_RECEIVED_END,
    AFTER_SENT_END,
    CLOSED,
    DELIVER,
    HALF_CLOSED_REMOTE,
    NAMES,
    ON_DATA,
    OPEN,
)
from proxy.http.headers import CONTENT_LENGTH, COOKIE, DROPPED, HEAD_ONLY, HOST, L5D, Field
from proxy.http.stream import keep

_SMALL: Final = 2048
"""Up to here a frame's header and data are cheaper joined than written apart."""
NO_WINDOW: Final = -(1 << 40)
"""The send window of a closed stream: nothing passes the fast path of `send_data`, which does not look at the state."""


class H2Stream(Sender):
    """Its roles set all of this in constructors of their own: CPython 3.11 is slower in one that makes objects of two classes."""

    __slots__ = (
        "id", "state", "connection", "is_tunnel", "body_left",
        "queue", "_queue_start", "_queue_ends", "_trailers", "_credit", "held", "_pauses",
    )  # fmt: skip

    id: int
    state: int
    """Only `close` changes it but by the tables of state.py, in `sent_end`, in `received_end`, and where these are written
    out because every request passes."""
    connection: Carrier
    is_tunnel: bool
    body_left: int
    """What is left of the announced content-length; a mismatch must not reach an HTTP/1 peer (RFC 9113 section 8.1.1)."""
    queue: deque[bytes] | None
    _queue_start: int
    """How much of the queue's first piece has left; like the next two, and `is_stalled`, it is set when the queue is made."""
    _queue_ends: bool
    _trailers: list[Field] | None
    _credit: Credit | None
    """Made when a body turns out longer than one frame."""
    held: int
    """Received while paused: credit not yet taken."""
    _pauses: int

    # ---- toward the peer

    def send_data(self, data: bytes, end: bool) -> None:
        connection = self.connection
        flow = connection.flow
        size = len(data)
        if (
            self.queue is None
            and size <= self.send_window
            and size <= flow.send_window
            and size <= limits.FRAME_BYTES
            and flow.is_writable
        ):
            if size or end:
                connection.floods.sent_messages += 1
                # What `_send_frame` does.
                self.send_window -= size
                flow.send_window -= size
                start = header_struct.pack(size << 8, END_STREAM if end else 0, self.id)
                if size <= _SMALL:
                    connection.wire.write(start + data)
                else:
                    connection.wire.write(start)
                    connection.wire.write(data)
                if end:
                    self.sent_end()
        elif self.state != CLOSED:
            self._enqueue(data, end)

    def send_trailers(self, fields: list[Field]) -> None:
        if self.queue is not None:
            self._trailers = fields
            return
        if self.state == CLOSED:
            return
        connection = self.connection
        try:
            block = connection.encoder.encode(tuple([one for one in fields if not one.kind or one.kind == COOKIE]))
        except ProtocolError:
            self.refuse_trailers()
            return
        if block:
            connection.wire.write(frame.header_frames(self.id, block, True))
        else:
            connection.wire.write(frame.header(0, frame.DATA, END_STREAM, self.id))
        self.sent_end()

    def reset(self, reason: Reason) -> None:
        self.detach()
        if self.state != CLOSED:
            self.reset_with(code_of(reason))

    def reset_with(self, code: int) -> None:
        self.close()
        connection = self.connection
        connection.wire.write(frame.rst_stream(self.id, code))
        connection.note_reset(self.id)
        connection.forget(self.id)

    def fail(self, reason: Reason) -> None:
        """Count the fault, reset the stream and end its exchange."""
        self.connection.settings.count_fault(reason)
        if self.state != CLOSED:
            self.reset_with(code_of(reason))
        self.deliver_reset(reason, code_of(reason))

    def close(self) -> None:
        """Send nothing more, whatever the caller was in the middle of."""
        self.state = CLOSED
        self.send_window = NO_WINDOW

    def pause_reading(self, cause: int) -> None:
        self._pauses |= cause

    def resume_reading(self, cause: int) -> None:
        self._pauses &= ~cause
        if self.held and not self._pauses:
            held = self.held
            self.held = 0
            self._take(held)

    def _send_frame(self, data: bytes, size: int, end: bool) -> None:
        connection = self.connection
        self.send_window -= size
        connection.flow.send_window -= size
        start = header_struct.pack(size << 8, END_STREAM if end else 0, self.id)
        if size <= _SMALL:
            connection.wire.write(start + data)
        else:
            connection.wire.write(start)
            connection.wire.write(data)
        if end:
            self.sent_end()

    def _enqueue(self, data: bytes, end: bool) -> None:
        backlog = self.connection.backlog
        queue = self.queue
        is_new = queue is None
        if queue is None:
            queue = self.queue = deque()
            self._queue_start = 0
            self._trailers = None
            self.is_stalled = False
        keep(queue, data)
        backlog.hold(len(data) + STREAM_BYTES if is_new else len(data))
        self._queue_ends = end
        if is_new:
            self.pump()
            if self.queue is not None:
                backlog.wait(self)
                self.tell_blocked()

    def pump(self) -> bool:
        queue = self.queue
        if queue is None:
            return True
        flow = self.connection.flow
        backlog = self.connection.backlog
        while queue:
            data = queue[0]
            start = self._queue_start
            size = len(data) - start
            room = min(self.send_window, flow.send_window, limits.FRAME_BYTES)
            if size and (room <= 0 or not flow.is_writable):
                return False
            self.is_stalled = False
            backlog.frames += 1
            if size > room:
                # The rest is not moved, because the cost of one octet of window must not depend on how much waits behind it.
                self._queue_start = start + room
                self._send_frame(data[start : start + room], room, False)
                backlog.release(room)
                continue
            queue.popleft()
            self._queue_start = 0
            ends = not queue and self._queue_ends
            backlog.release(size if queue else size + STREAM_BYTES)
            if not queue:
                # Before the last frame, whose end forgets the stream: `discard` must not give the queue's room back again.
                self.queue = None
            if size or ends:
                self._send_frame(data[start:] if start else data, size, ends)
        trailers = self._trailers
        if trailers is not None:
            self._trailers = None
            self.send_trailers(trailers)
        return True

    # ---- from the peer

    def receive_data(self, data: bytes, flags: int) -> None:
        """A DATA frame. ProtocolError if it breaks the connection; the stream alone is reset."""
        connection = self.connection
        flow = connection.flow
        size = len(data)  # what flow control counts: with the padding
        shared = flow.credit
        window = shared.window = shared.window - size
        if window < 0:
            raise overrun()
        end = flags & END_STREAM != 0
        if flags & PADDED:
            data = frame.unpadded(data, PADDED)
        if ON_DATA[self.state] != DELIVER:
            self._refuse_data(size, Reason.STREAM_CLOSED)
            return
        if not data and not end:
            connection.floods.charge_silent(1)
        credit = self._credit
        # A body that comes whole in one frame, within the window, needs no Credit: a stream that has ended gives nothing back.
        if credit is None and (not end or size > flow.stream_window):
            credit = self._credit = Credit(flow.stream_window, connection.settings.stream_window_bytes)
        if credit is not None:
            credit.window -= size
            if credit.window < 0:
                self._refuse_data(size, Reason.FLOW_CONTROL)
                return
        left = self.body_left
        if left >= 0:
            left = self.body_left = left - len(data)
            if left < 0 or (end and left):
                self._refuse_data(size, Reason.PROTOCOL_ERROR)  # it does not match content-length
                return
        if end:
            state = self.state = AFTER_RECEIVED_END[self.state]  # what `received_end` does
            if state == CLOSED:
                self.send_window = NO_WINDOW
                connection.forget(self.id)
        try:
            self.deliver_data(data, end)
        except Exception as error:
            connection.fail_stream(self, error)
        # If that closed the stream, what it held was given back already, and this is given back at once.
        if self._pauses and self.state != CLOSED:
            self.held += size
        elif credit is None:
            taken = shared.taken = shared.taken + size
            if taken >= shared.batch:
                flow.give_back()
        else:
            self._take(size)

    def _refuse_data(self, size: int, reason: Reason) -> None:
        """The frame breaks the stream, but the connection's window must not shrink with it."""
        connection = self.connection
        connection.flow.take(size)
        connection.reset_stream(self, reason)

    def receive_trailers(self, fields: list[Field]) -> None:
        """Fields of framing, routing, trust and the mesh are dropped (RFC 9110 section 6.5.1); what no message may hold is refused."""
        if self.body_left > 0:
            raise ProtocolError("body does not match content-length")
        if len(fields) > limits.HEAD_FIELDS or sum([one.size for one in fields]) > limits.HEAD_BYTES:
            raise ProtocolError(Reason.TRAILERS_LIMIT.value, Reason.TRAILERS_LIMIT)
        kept: list[Field] = []
        for one in fields:
            kind = one.kind
            if not kind or kind == COOKIE:
                if one.name not in HEAD_ONLY:
                    kept.append(one)
            elif kind not in (HOST, CONTENT_LENGTH, L5D, DROPPED):
                raise ProtocolError("bad trailers")
        self.received_end()
        self.deliver_trailers(kept)

    def received_end(self) -> None:
        self.state = AFTER_RECEIVED_END[self.state]
        if self.state == CLOSED:
            self.send_window = NO_WINDOW
            self.connection.forget(self.id)

    def sent_end(self) -> None:
        self.state = AFTER_SENT_END[self.state]
        if self.state == CLOSED:
            self.send_window = NO_WINDOW
            self.connection.forget(self.id)

    def has_unsent(self) -> bool:
        return self.queue is not None

    def has_more_to_come(self) -> bool:
        return self.state == OPEN or self.state == HALF_CLOSED_REMOTE

    def is_complete(self) -> bool:
        return self.queue is not None and (self._queue_ends or self._trailers is not None)

    def discard(self) -> int:
        """The stream is gone; the credit that its connection is owed for it."""
        held = self.held
        queue = self.queue
        if queue is not None:
            self.connection.backlog.release(sum(map(len, queue)) - self._queue_start + STREAM_BYTES)
            self._trailers = None
        self.held = 0
        self.queue = None
        return held

    def _take(self, size: int) -> None:
        connection = self.connection
        connection.flow.take(size)
        credit = self._credit
        # A peer that has ended its message needs no more credit for this stream; the connection always does.
        if credit is not None and self.state < HALF_CLOSED_REMOTE:
            credit.taken += size
            if credit.taken >= credit.batch:
                connection.wire.write(frame.window_update(self.id, credit.give_back()))

    # ---- what the roles add

    def detach(self) -> None:
        """Release the exchange, so that both can be freed."""
        raise NotImplementedError

    def is_unanswered(self) -> bool:
        """Whether work was begun for its request, and nothing of the answer is there yet (servers)."""
        raise NotImplementedError

    def deliver_data(self, data: bytes, end: bool) -> None:
        raise NotImplementedError

    def deliver_trailers(self, fields: list[Field]) -> None:
        raise NotImplementedError

    def deliver_reset(self, reason: Reason, code: int) -> None:
        """`code` is the peer's, or the one that stands for `reason`."""
        raise NotImplementedError

    def refuse_trailers(self) -> None:
        """The peer does not take trailers of that length; without any the message would look whole."""
        self.fail(Reason.PEER_TRAILERS_LIMIT)

    def deliver_end(self, reason: Reason, code: int) -> None:
        """The stream ended with its connection, or by the peer's GOAWAY."""
        self.deliver_reset(reason, code)

    def __repr__(self) -> str:
        return f"{type(self).__name__}#{self.id} {NAMES[self.state]}"
