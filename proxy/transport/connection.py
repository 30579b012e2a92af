"""Plain connections: a socket on a uvloop transport, seen by its codec as a Wire.

Law: output gathers and leaves once per loop iteration, as one buffer.
Both directions end on their own (half-close); when both have, or on abort,
the codec hears `lost` once. A connection may be written to before it is made.
"""

from __future__ import annotations

from asyncio import Transport
from collections.abc import Callable

from proxy.core import limits
from proxy.core.codec import Codec, Wire
from proxy.core.errors import report_fault
from proxy.core.flusher import Flusher
from proxy.core.reason import Reason

MakeCodec = Callable[[Wire], Codec]


class PlainConnection:
    """Also the loop's protocol object, by duck typing: mypyc classes cannot inherit asyncio.Protocol."""

    __slots__ = (
        "codec", "_flusher", "_transport", "_output", "_reason",
        "_is_marked", "_is_full", "_is_paused", "_is_ending", "_has_eof",
    )  # fmt: skip

    def __init__(self, flusher: Flusher, make_codec: MakeCodec) -> None:
        self._flusher = flusher
        self._transport: Transport | None = None
        self._output: list[bytes] = []
        self._reason: Reason | None = None
        """Set once the connection is gone, or is to be."""
        self._is_marked = False
        self._is_full = False
        self._is_paused = False
        self._is_ending = False
        self._has_eof = False
        self.codec = make_codec(self)

    # ---- Wire

    def write(self, data: bytes) -> None:
        self._output.append(data)
        if not self._is_marked:
            self._is_marked = True
            self._flusher.mark(self)

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._transport is not None and not self._has_eof:
            self._transport.resume_reading()

    def end(self) -> None:
        self._is_ending = True
        if not self._is_marked:
            self._is_marked = True
            self._flusher.mark(self)

    def abort(self, reason: Reason) -> None:
        if self._reason is None:
            self.flush()
            self._reason = reason
            if self._transport is not None:
                # Not `abort`: what is written (a GOAWAY, a 400) should still leave.
                self._transport.close()

    def hand_over(self, codec: Codec) -> None:
        self.codec = codec

    # ---- Flusher

    def flush(self) -> None:
        self._is_marked = False
        transport = self._transport
        output = self._output
        if transport is None:
            if sum(map(len, output)) > limits.WRITE_HIGH_BYTES:
                self.pause_writing()
        elif self._reason is not None:
            output.clear()
        else:
            if output:
                self._output = []
                transport.write(output[0] if len(output) == 1 else b"".join(output))
            if self._is_ending:
                self._end_now(transport)

    def _end_now(self, transport: Transport) -> None:
        if self._has_eof:
            self._reason = Reason.COMPLETE
            transport.close()
        else:
            transport.write_eof()

    # ---- the loop

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        if self._reason is not None:
            transport.abort()
            return
        transport.set_write_buffer_limits(limits.WRITE_HIGH_BYTES, limits.WRITE_LOW_BYTES)
        self.flush()
        if self._is_full:
            self.resume_writing()
        if self._is_paused:
            transport.pause_reading()

    def connect_failed(self) -> None:
        self._reason = Reason.CONNECT_FAILED
        self.codec.lost(Reason.CONNECT_FAILED)

    def data_received(self, data: bytes) -> None:
        if self._reason is None:
            try:
                self.codec.feed(data)
            except Exception:
                report_fault()
                self.abort(Reason.INTERNAL)

    def eof_received(self) -> bool:
        self._has_eof = True
        if self._reason is None:
            self.codec.eof()
            if self._is_ending and self._transport is not None:
                self._end_now(self._transport)
        return True

    def pause_writing(self) -> None:
        if not self._is_full:
            self._is_full = True
            self.codec.writable(False)

    def resume_writing(self) -> None:
        self._is_full = False
        if self._reason is None:
            self.codec.writable(True)

    def connection_lost(self, error: Exception | None) -> None:
        if self._reason is None:
            self._reason = Reason.PEER_CLOSED
        self.codec.lost(self._reason)
