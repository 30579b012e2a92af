"""Plain connections: a socket on a uvloop transport, seen by its codec as a Wire.

Output gathers and leaves once per loop iteration, as one buffer. Both directions
end on their own (half-close); when both have, or on abort, the codec's `lost`
is called once. An exception in a codec ends this connection and goes no further.
"""

from __future__ import annotations

import socket
from asyncio import Transport
from collections.abc import Callable
from typing import Final

from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.codec import CLOSED, Codec, Wire
from proxy.core.connection.dial import Connecting, DialOptions, errno_name, has_anything, reset_on_close, unread_of
from proxy.core.connection.gathering import Gathering
from proxy.core.connection.meter import Meter
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.effort import spent
from proxy.core.loop.reactor import Reactor
from proxy.transport.adopt import adopt

MakeCodec = Callable[[Wire], Codec]

_LONG_READ_BYTES: Final = 250_000
"""uvloop reads at most 256,000 bytes at once: a read this long shows that the kernel has more."""


class PlainConnection(Gathering):
    """Also the loop's protocol object, by duck typing: mypyc classes cannot inherit asyncio.Protocol."""

    __slots__ = (
        "_sock", "_transport", "_connecting", "_on_made", "_on_failed",
        "_missed", "_reason", "_errno", "_is_full", "_is_paused", "_has_eof", "_is_open", "_is_lost",
    )  # fmt: skip

    def __init__(self, reactor: Reactor, make_codec: MakeCodec, meter: Meter | None) -> None:
        super().__init__(reactor)
        self.meter = meter
        self.on_lost = None
        self._sock: socket.socket | None = None
        self._transport: Transport | None = None
        self._connecting: Connecting | None = None
        self._on_made: Callable[[], None] | None = None
        self._on_failed: Callable[[str], None] | None = None
        self._missed: list[bytes] = []  # read while reading was paused or out of turn; b"" stands for the end
        self._reason: Reason | None = None  # set once the connection is gone, or is to be
        self._errno = ""
        self._is_full = self._is_paused = False
        self._has_eof = self._is_open = self._is_lost = False
        self.codec = make_codec(self)

    # ---- beginning

    def connect(self, addr: Addr, options: DialOptions) -> None:
        self._on_made = options.on_connected
        self._on_failed = options.on_failed
        self._deadline = self.reactor.wheel.after(options.connect_timeout_s, self._timed_out)
        self._connecting = Connecting(self.reactor, addr, options, self._on_connected, self._on_connect_error)

    def _on_connected(self, sock: socket.socket) -> None:
        self._connecting = None
        self._disarm()  # the rest is our own work, and not the peer's fault if it takes long
        self.adopt(sock)

    def adopt(self, sock: socket.socket) -> None:
        """Serve a connected socket, which is ours from now on."""
        self._sock = sock
        adopt(self.reactor.loop, self, sock, self._on_adopted)

    def _on_adopted(self, error: str) -> None:
        if error and not self._is_lost:
            self._fail(Reason.CONNECT_FAILED, error)
        elif self._is_paused and self._reason is None and self._transport is not None:
            self._transport.pause_reading()  # the loop has begun to read, even if reading was paused before

    def _on_connect_error(self, error: OSError) -> None:
        self._fail(Reason.CONNECT_FAILED, f"{error.strerror} ({errno_name(error)})")

    def _timed_out(self) -> None:
        """The connect took too long, or what was written before an abort did."""
        self._deadline = None
        connecting, transport = self._connecting, self._transport
        if transport is not None:
            transport.abort()
        elif connecting is None or not connecting.settle():
            self._fail(Reason.CONNECT_TIMEOUT, "connect timed out")

    def _fail(self, reason: Reason, text: str) -> None:
        """The connection was never made."""
        self._reason = reason
        connecting = self._connecting
        if connecting is not None:
            self._connecting = None
            connecting.cancel()
        on_failed = self._on_failed
        if on_failed is not None:
            self._on_failed = None
            on_failed(text)
        self._lose(reason)

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
        self._is_paused = True
        if self._transport is not None and self._reason is None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._missed:
            self.reactor.loop.call_soon(self.step)
        elif self._transport is not None and self._reason is None and not self._has_eof:
            self._transport.resume_reading()

    def abort(self, reason: Reason) -> None:
        if self._reason is not None:
            return
        transport = self._transport
        if reason is Reason.CONNECTION_RESET:
            self._reason = reason
            if transport is not None:
                self._reset(transport)
        else:
            self.flush()
            self._reason = reason
            if transport is not None:
                self._close_gently(transport)
        if transport is None and self._sock is None:
            self._on_failed = None
            self.reactor.loop.call_soon(self._fail, reason, "")

    def _close_gently(self, transport: Transport) -> None:
        transport.close()  # not `abort`: what is written (a GOAWAY, a 400) should still leave
        if transport.get_write_buffer_size():
            self._deadline = self.reactor.wheel.after(limits.ABORT_S, self._timed_out)

    def _close_unmade(self, transport: Transport) -> None:
        """Close a connection that was refused before a byte was read."""
        if self._reason is Reason.CONNECTION_RESET:
            self._reset(transport)
            return
        transport.write(b"".join(self._output))
        self._close_gently(transport)

    def _reset(self, transport: Transport) -> None:
        sock = self._sock
        if sock is not None:
            reset_on_close(sock)
        transport.abort()

    def is_stale(self) -> bool:
        return self._sock is None or not self.is_idle_reader() or has_anything(self._sock)

    def hand_over(self, codec: Codec) -> None:
        if not self._is_lost:
            self.codec = codec

    # ---- Flusher

    def flush(self) -> None:
        self._is_marked = False
        transport = self._transport
        output = self._output
        if self._reason is not None:
            if transport is not None:
                output.clear()
        elif transport is None:
            if sum(map(len, output)) > limits.WRITE_HIGH_BYTES:
                self.pause_writing()
        else:
            if output:
                self._output = []
                data = output[0] if len(output) == 1 else b"".join(output)
                if self.meter is not None:
                    self.meter.written_bytes += len(data)
                transport.write(data)
            if self._is_ending:
                self._end_now(transport)

    def _end_now(self, transport: Transport) -> None:
        if not self._has_eof:
            transport.write_eof()
            return
        self._reason = Reason.COMPLETE
        transport.close()

    # ---- of a splice

    def fileno(self) -> int:
        sock = self._sock
        return -1 if sock is None else sock.fileno()

    def is_idle_reader(self) -> bool:
        """Whether it is open and reading, and nothing read is waiting for its codec."""
        return self._reason is None and self._is_open and not (self._is_paused or self._has_eof or self._missed)

    def _is_over(self) -> bool:  # a method, because mypyc assumes that an attribute is unchanged after a call
        return self._reason is not None

    def has_written_all(self) -> bool:
        """Whether it is open, and all that was written is with the kernel; flushes first."""
        if self._reason is not None or self._is_ending:
            return False
        self.flush()
        transport = self._transport
        return transport is not None and not self._is_over() and not transport.get_write_buffer_size()

    def broken(self, error: OSError) -> None:
        """The splice met an error on this socket."""
        self._errno = errno_name(error)
        self.abort(Reason.CONNECTION_RESET)

    # ---- the loop

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        self._disarm()
        self._is_open = True
        if self.meter is not None:
            self.meter.open(self.reactor.clock())
        if self._reason is not None:
            self._close_unmade(transport)
            return
        transport.set_write_buffer_limits(limits.WRITE_HIGH_BYTES, limits.WRITE_LOW_BYTES)
        self.flush()
        if transport.get_write_buffer_size() <= limits.WRITE_LOW_BYTES:
            self.resume_writing()
        on_made = self._on_made
        if on_made is not None:
            self._on_made = None
            try:
                on_made()
            except Exception:
                self._give_up()

    def data_received(self, data: bytes) -> None:
        flusher = self.reactor.flusher
        if self._is_paused:
            self._miss(data)
        elif (flusher.reads_left <= 0 or spent.s > flusher.enough_s) and self.reactor.turn.is_over():
            self._miss(data)
            self.reactor.reads.add(self)
        else:
            flusher.reads_left -= 1
            if self._reason is None:  # what `_feed` does
                meter = self.meter
                if meter is not None:
                    meter.read_bytes += len(data)
                try:
                    self.codec.feed(data)
                except Exception:
                    self._give_up()
                if len(data) >= _LONG_READ_BYTES:
                    self._read_later()

    def _feed(self, data: bytes) -> None:
        if self._reason is None:
            if self.meter is not None:
                self.meter.read_bytes += len(data)
            try:
                self.codec.feed(data)
            except Exception:
                self._give_up()
            if len(data) >= _LONG_READ_BYTES:
                self._read_later()

    def eof_received(self) -> bool:
        if self._is_paused or self._missed:
            self._miss(b"")
        else:
            self._end_read()
        return True

    def _end_read(self) -> None:
        self._has_eof = True
        if self._reason is None:
            try:
                self.codec.eof()
            except Exception:
                self._give_up()
            transport = self._transport
            if self._is_ending and not self._is_marked and not self._is_over() and transport is not None:
                self._end_now(transport)

    def _read_later(self) -> None:
        """Read once per turn. The loop would read up to 32 times before anything is flushed or reading can be paused."""
        transport = self._transport
        if transport is not None and self._reason is None and not self._is_paused:
            transport.pause_reading()
            self.reactor.reads.add(self)

    def _miss(self, data: bytes) -> None:
        # Also because uvloop begins to read after connection_made even if reading was paused there: one read may come.
        self._missed.append(data)
        if self._transport is not None:
            self._transport.pause_reading()

    def step(self) -> None:
        """Go on with what was read before, and read on; the queue of reads calls this, or the loop."""
        while self._missed and not self._is_paused:
            if data := self._missed.pop(0):
                self._feed(data)
            else:
                self._end_read()
        if self._reason is None and not self._is_paused:
            self.resume_reading()

    def pause_writing(self) -> None:
        self._say_writable(False)

    def resume_writing(self) -> None:
        self._say_writable(True)

    def _say_writable(self, is_writable: bool) -> None:
        if self._is_full is is_writable:
            self._is_full = not is_writable
            try:
                if self._reason is None:
                    self.codec.writable(is_writable)
            except Exception:
                self._give_up()

    def connection_lost(self, error: Exception | None) -> None:
        reason = self._reason
        errno = errno_name(error) or self._errno
        if reason is None:
            reason = Reason.CONNECTION_RESET if errno in ("ECONNRESET", "EPIPE") else Reason.PEER_CLOSED
            if reason is Reason.CONNECTION_RESET and self._is_open and not (self._is_paused or self._has_eof):
                # A server that answers early resets us while we still write: its answer is there to read.
                self._transport = None
                missed, self._missed = self._missed, []
                if data := b"".join(missed) + unread_of(self._sock):
                    self._feed(data)
            reason = self._reason = self._reason or reason
        if self._is_open:
            self._is_open = False
            if self.meter is not None:
                self.meter.close(errno, self.reactor.clock())
        self._lose(reason)

    def _lose(self, reason: Reason) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._disarm()
        if self.meter is not None:
            self.meter.lost(reason)
        codec, on_lost = self.codec, self.on_lost
        # Let go of what points back here, so that a lost connection is freed at once.
        self.codec = CLOSED
        self.on_lost = self._on_made = self._on_failed = self._transport = self._sock = None
        self._output.clear()
        self._missed.clear()
        try:
            codec.lost(reason)
        except Exception:
            report_fault()
        if on_lost is not None:
            on_lost()

    def _give_up(self) -> None:
        report_fault()
        self.abort(Reason.INTERNAL)
