"""Bulk data without copies: the kernel moves one direction of a relay from socket to pipe to socket.

It takes over only between two plain connections, after SPLICE_AFTER_BYTES in
one direction, when nothing is left to write: it halves the cost of bulk data
and adds to the cost of a connection (performance rule 3). At most one pipe of
bytes is under way. The source's own reader finds the end of the stream; a
broken socket breaks its own connection, and the relay does the rest.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from typing import Final

from proxy.core.loop.timers import Timer
from proxy.transport.connection import PlainConnection

SPLICE_AFTER_BYTES: Final = 524_288
_IDLE_S: Final = 2.0
"""After once to twice this time without a byte, the direction is read normally again."""
_PIPE_BYTES: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
"""linux/fcntl.h; the fcntl module names it from Python 3.10 on, where the C library does."""


class Splice:
    """One direction, source to sink, until `close`."""

    __slots__ = (
        "_loop",
        "_source",
        "_sink",
        "_on_moved",
        "_on_idle",
        "_has_moved",
        "_reactor",
        "_deadline",
        "_from",
        "_to",
        "_inlet",
        "_outlet",
        "_held",
        "_is_writing",
        "_is_open",
    )

    def __init__(
        self,
        source: PlainConnection,
        sink: PlainConnection,
        on_moved: Callable[[int], None],
        on_idle: Callable[[], None],
    ) -> None:
        """OSError, and nothing changed, if there are no descriptors for it."""
        self._reactor = source.reactor
        self._loop = source.reactor.loop
        self._source = source
        self._sink = sink
        self._on_moved = on_moved
        self._on_idle = on_idle
        self._has_moved = True
        fds: list[int] = []
        try:
            fds += os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            # The loop refuses to watch a descriptor of one of its transports, so these are duplicates.
            fds.append(os.dup(source.fileno()))
            fds.append(os.dup(sink.fileno()))
            if not source.reactor.descriptors.may_accept(max(fds)):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))  # it would take four, and others need them more
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        self._outlet, self._inlet, self._from, self._to = fds
        self._held = 0
        self._is_writing = False
        self._is_open = True
        try:
            fcntl.fcntl(self._inlet, _F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # the user's share of pipe memory is used up: smaller steps
        source.pause_reading()
        self._deadline = self._arm()
        self._loop.add_reader(self._from, self._on_readable)

    def close(self) -> None:
        """Stop moving; what is in the pipe is lost. Idempotent."""
        if self._is_open:
            self._is_open = False
            self._deadline.cancel()
            self._loop.remove_reader(self._from)
            self._loop.remove_writer(self._to)
            for fd in (self._inlet, self._outlet, self._from, self._to):
                os.close(fd)

    def _arm(self) -> Timer:
        return self._reactor.wheel.after(_IDLE_S, self._look)

    def _look(self) -> None:
        """Stop if nothing has moved: four descriptors are too many for a connection that only waits."""
        if self._has_moved or self._held:
            self._has_moved = False
            self._deadline = self._arm()
        else:
            self.close()
            self._on_idle()
            self._source.resume_reading()

    def _on_readable(self) -> None:
        try:
            count = os.splice(self._from, self._inlet, _PIPE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.close()
            self._source.broken(error)
            return
        if not count:
            self.close()
            self._source.resume_reading()
            return
        self._has_moved = True
        self._held += count
        self._on_moved(count)
        if self._source.meter is not None:
            self._source.meter.read_bytes += count
        self._push()

    def _push(self) -> None:
        while self._held:
            try:
                count = os.splice(self._outlet, self._to, self._held)
            except BlockingIOError:
                self._wait_for_sink(True)
                return
            except OSError as error:
                self.close()
                self._sink.broken(error)
                return
            self._held -= count
            if self._sink.meter is not None:
                self._sink.meter.written_bytes += count
        self._wait_for_sink(False)

    def _wait_for_sink(self, is_writing: bool) -> None:
        if is_writing is not self._is_writing:
            self._is_writing = is_writing
            if is_writing:
                self._loop.remove_reader(self._from)
                self._loop.add_writer(self._to, self._push)
            else:
                self._loop.remove_writer(self._to)
                self._loop.add_reader(self._from, self._on_readable)


def splice(source: object, sink: object, on_moved: Callable[[int], None], on_idle: Callable[[], None]) -> Splice | None:
    """Take over this direction, if both connections are plain and have nothing left to write."""
    if not isinstance(source, PlainConnection) or not isinstance(sink, PlainConnection):
        return None
    if not source.is_idle_reader() or not sink.has_written_all():
        return None
    try:
        return Splice(source, sink, on_moved, on_idle)
    except OSError:
        return None
