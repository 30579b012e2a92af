"""TLS connections: a non-blocking SSLSocket driven by the loop's reader and writer callbacks.

The same behaviour as a plain connection, half-close included:
close_notify is sent by `end` and reading goes on, which the loops' own ssl
cannot do. Only close_notify is a clean end: a bare FIN may be a truncation
(RFC 8446, section 6.1) and becomes `lost(PEER_CLOSED)`, without `eof`.
Records that are there are read together into one shared buffer and fed once;
whether to look for more records is learnt from earlier looks.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable
from typing import Any, Final

from proxy.core import limits
from proxy.core.codec import CLOSED, HANDSHAKE, Codec, Wire
from proxy.core.connection.dial import errno_name
from proxy.core.connection.gathering import Gathering
from proxy.core.connection.meter import Meter
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Reactor
from proxy.tls.context import forget_errors, is_reset, unread_of
from proxy.tls.ending import reason_of, shut

MakeCodec = Callable[[Wire], Codec]

_BUFFER_BYTES: Final = 524288
_RECORD_BYTES: Final = 16384
_PATIENCE: Final = 8
_LONGEST_PAUSE: Final = 64
"""After so many looks for a second record that found none (each costs as much as three system calls) some wake-ups pass
without one, and twice as many after the next, up to the longest pause. A look that finds a record begins anew. We never
stop looking: two peers would settle into one record per wake-up for good."""

# One buffer for all: an allocation of this size per read would be mapped and unmapped every time.
_buffer: Final = bytearray(_BUFFER_BYTES)
_view: Final = memoryview(_buffer)

_WAITING: Final = 0
_OPEN: Final = 1
_LINGERING: Final = 2
_CLOSED: Final = 3


def _read_nothing(size: int, buffer: memoryview) -> int:
    raise ssl.SSLWantReadError


class TlsConnection(Gathering):
    """A Wire that is waiting for its handshake (handshake.py), open, lingering (aborted, output still leaves), or closed."""

    __slots__ = (
        "_loop", "_socket", "_fd", "_state",
        "_unsent", "_read", "_write", "_patience", "_skips", "_pause", "_on_abandoned", "_reason", "_errno",
        "_is_paused", "_has_ended", "_has_eof", "_is_full",
    )  # fmt: skip

    def __init__(self, reactor: Reactor, meter: Meter | None, on_abandoned: Callable[[], None]) -> None:
        """Set `codec` before `opened` is called. `on_abandoned` is called if the connection is aborted before that."""
        super().__init__(reactor)
        self._loop = reactor.loop
        self.meter = meter
        self.on_lost = None
        self.codec = HANDSHAKE
        self._on_abandoned: Callable[[], None] | None = on_abandoned
        self._socket: ssl.SSLSocket | None = None
        self._fd = -1
        self._state = _WAITING
        self._unsent = b""
        self._read: Callable[..., int] = _read_nothing
        self._write: Callable[[bytes | memoryview], int] | None = None
        self._patience = self._pause = _PATIENCE
        self._skips = 0
        """So many more wake-ups pass without a look for a second record."""
        self._reason = Reason.COMPLETE
        self._errno = ""
        self._is_paused = self._is_full = False
        self._has_ended = self._has_eof = False

    # ---- of the handshake

    def opened(self, tls: ssl.SSLSocket, first_bytes: bytes) -> None:
        """The handshake is done; from now on only this object watches the socket."""
        self._on_abandoned = None
        if self._state == _CLOSED:
            shut(tls, self._reason, False)  # the peer was refused while its codec was made
            self._count_refused()
            return
        self._socket = tls
        self._fd = tls.fileno()
        # SSLSocket's own read and send do the same with two more Python calls each time.
        engine: Any = getattr(tls, "_sslobj", None) or tls
        self._read = engine.read
        self._write = engine.write
        self._state = _OPEN
        if self.meter is not None:
            self.meter.open(self.reactor.clock())
        if not self._is_paused:
            self._loop.add_reader(self._fd, self._on_readable)
        if first_bytes:
            self._output.insert(0, first_bytes)
        self.flush()
        self._watch_level()

    def _count_refused(self) -> None:
        meter = self.meter
        if meter is not None:
            now = self.reactor.clock()
            meter.open(now)
            meter.close("", now)
            meter.lost(self._reason)

    def not_opened(self, reason: Reason) -> None:
        """There will be no connection; the codec's `lost` is called, if there is a codec."""
        if self._state == _WAITING:
            self._state = _CLOSED
            self._reason = reason
            self._output = []
            self._lose()

    # ---- Wire

    def write(self, data: bytes) -> None:
        self._output.append(data)
        if not self._is_marked:
            self._is_marked = True
            marked = self.reactor.flusher.marked
            if marked:
                marked.append(self)
            else:
                self.reactor.flusher.mark(self)  # the first of a turn

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            if self._state == _OPEN and not self._has_eof:
                self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if self._state == _OPEN and not self._has_eof:
                self._loop.add_reader(self._fd, self._on_readable)

    def abort(self, reason: Reason) -> None:
        if self._state == _WAITING:
            self._state = _CLOSED
            self._reason = reason
            on_abandoned = self._on_abandoned
            if on_abandoned is not None:
                self._on_abandoned = None
                on_abandoned()
            self._loop.call_soon(self._lose)
        elif self._state == _OPEN:
            if reason is Reason.CONNECTION_RESET:
                self._close(reason)
                return
            self.flush()  # a GOAWAY, a 400 should still leave
            if self._state != _OPEN:
                return
            if self._unsent:
                self._linger(reason)
            else:
                self._close(reason)

    def is_stale(self) -> bool:
        return self._state != _OPEN or self._has_eof

    def peer_certificate(self) -> bytes | None:  # as DER; None without one, or when it is closed
        return None if self._socket is None else self._socket.getpeercert(True)

    def hand_over(self, codec: Codec) -> None:
        if self.codec is not CLOSED:
            self.codec = codec

    # ---- ending

    def _linger(self, reason: Reason) -> None:
        self._state = _LINGERING
        self._reason = reason
        self._loop.remove_reader(self._fd)
        self._deadline = self.reactor.wheel.after(limits.ABORT_S, self._timed_out)

    def _timed_out(self) -> None:
        """The peer does not take what was written before an abort."""
        self._deadline = None
        if self._state == _LINGERING:
            self._close(self._reason)

    def _close(self, reason: Reason) -> None:
        if self._state == _CLOSED:
            return
        self._state = _CLOSED
        self._reason = reason
        self._output = []
        self._unsent = b""
        self._disarm()
        tls = self._socket
        if tls is not None:
            self._socket = None
            self._read = _read_nothing
            self._write = None
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            shut(tls, reason, self._has_ended)
        if self.meter is not None:
            self.meter.close(self._errno, self.reactor.clock())
            self.meter.lost(reason)
        self._loop.call_soon(self._lose)

    def _fail(self, error: OSError) -> None:
        """Called when a read or a write has failed, which breaks the connection."""
        if self._state == _OPEN or self._state == _LINGERING:
            if is_reset(error):
                error = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
            self._errno = "" if isinstance(error, ssl.SSLError) else errno_name(error)
            self._close(reason_of(error) if self._state == _OPEN else self._reason)

    def _lose(self) -> None:
        codec = self.codec
        on_lost = self.on_lost
        self.codec = CLOSED  # breaks the cycle with the codec, so that both are freed at once
        self.on_lost = self._on_abandoned = None
        try:
            codec.lost(self._reason)
        except Exception:
            report_fault()
        if on_lost is not None:
            on_lost()

    def _give_up(self) -> None:
        report_fault()
        self.abort(Reason.INTERNAL)

    # ---- Flusher

    def flush(self) -> None:
        self._is_marked = False
        unsent = self._unsent
        if self._state != _OPEN or unsent:
            if self._state <= _OPEN:
                self._watch_level()
            else:
                self._output = []
            return
        output = self._output
        if output:
            self._output = []
            data = output[0] if len(output) == 1 else b"".join(output)
            if self.meter is not None:
                self.meter.written_bytes += len(data)
            self._send(data)
        if self._is_ending and not self._has_ended and not self._unsent and self._is_open():
            self._send_close_notify()

    def _is_open(self) -> bool:  # a method, because mypyc assumes that an attribute is unchanged after a call
        return self._state == _OPEN

    def _send(self, data: bytes) -> None:
        write = self._write
        if write is None:
            return
        sent = 0
        size = len(data)
        try:
            sent = write(data)
            if sent < size:
                view = memoryview(data)
                while sent < size:  # one record at a time
                    sent += write(view[sent:])
        except (ssl.SSLWantWriteError, BlockingIOError):
            self._unsent = data[sent:]
            self._loop.add_writer(self._fd, self._on_writable)
            self._watch_level()
        except OSError as error:
            forget_errors()
            self._write = None
            if self._state == _OPEN and not (self._is_paused or self._has_eof):
                self._deliver(unread_of(self._read, _view), False)
            self._fail(error)

    def _watch_level(self) -> None:
        level = len(self._unsent) + sum(map(len, self._output))
        is_full = level > limits.WRITE_HIGH_BYTES if not self._is_full else level > limits.WRITE_LOW_BYTES
        if is_full is not self._is_full and self._state <= _OPEN:
            self._is_full = is_full
            try:
                self.codec.writable(not is_full)
            except Exception:
                self._give_up()

    def _send_close_notify(self) -> None:
        tls = self._socket
        if tls is None:
            return
        has_both = self._has_eof
        try:
            tls.unwrap()
            has_both = True
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self._fd, self._on_writable)
            return
        except ssl.SSLError:
            pass  # ours is sent; the peer's has not come, or data came before it
        except OSError as error:
            forget_errors()
            self._fail(error)
            return
        self._has_ended = True
        if has_both:
            self._deliver(0, not self._has_eof)
            self._close(Reason.COMPLETE)

    # ---- the loop

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._fd)
        unsent = self._unsent
        self._unsent = b""
        if unsent:
            self._send(unsent)
        if self._unsent:
            return
        if self._state == _OPEN:
            self.flush()
            self._watch_level()
        elif self._state == _LINGERING:
            self._close(self._reason)

    def _on_readable(self) -> None:
        if self.reactor.turn.is_over():
            self._loop.remove_reader(self._fd)
            self.reactor.reads.add(self)
        else:
            self._read_records()

    def step(self) -> None:
        """The queue of reads calls this: a turn has begun in which there is time for this connection."""
        if self._state == _OPEN and not (self._is_paused or self._has_eof):
            self._loop.add_reader(self._fd, self._on_readable)
            self._read_records()

    def _read_records(self) -> None:
        if self._state != _OPEN:
            return
        filled = 0
        has_eof = False
        failure: OSError | None = None
        try:
            filled = self._read(_BUFFER_BYTES, _buffer)
            has_eof = not filled
            if self._skips and filled != _RECORD_BYTES:
                self._skips -= 1
            elif filled:
                if self._patience:
                    self._patience -= 1
                else:
                    self._skips = self._pause
                    self._pause = min(2 * self._pause, _LONGEST_PAUSE)
                while filled <= _BUFFER_BYTES - _RECORD_BYTES:
                    count = self._read(_RECORD_BYTES, _view[filled:])
                    if not count:
                        has_eof = True
                        break
                    filled += count
                    self._patience = self._pause = _PATIENCE
                    self._skips = 0
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            has_eof = True  # what close_notify looks like once we have sent ours
        except OSError as error:
            forget_errors()
            failure = error
        self._deliver(filled, has_eof)
        if failure is not None:
            self._fail(failure)
            failure = None  # its traceback holds this frame, and so the connection

    def _deliver(self, filled: int, has_eof: bool) -> None:
        try:
            if filled:
                if self.meter is not None:
                    self.meter.read_bytes += filled
                self.codec.feed(_view[:filled].tobytes())
            if has_eof and self._state == _OPEN:
                self._has_eof = True
                self._loop.remove_reader(self._fd)
                self.codec.eof()
                if self._has_ended and self._state == _OPEN:
                    self._close(Reason.COMPLETE)
        except Exception:
            self._give_up()
