"""H2Connection: reads frames, checks that they come in the order that the protocol allows, and gives each to its stream.

A fault of one stream resets that stream; only a fault of the connection ends
the connection. A header block is always decoded, even for a stream that is
gone, or the table would fall out of step. Work per frame is O(1), but for
SETTINGS, which pays for the streams it touches. What one read brought beyond
the connection's share of a turn waits in `_buffer`, with reading paused.

Its parts own their state: `Flow` the windows, `Backlog` the data that cannot leave, `Floods` what the peer owes, `Leaving`
how far the connection is on its way to its end, `Keepalive` and `Sequence` their timers; `Streams` keeps the streams.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.core.loop.effort import spent
from proxy.core.loop.reactor import Clock
from proxy.core.loop.timers import Wheel
from proxy.http.ending.endings import code_of
from proxy.http.ending.linger import Linger
from proxy.http.ending.refusal import note_flood
from proxy.http.h2 import control
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.frame import DATA, END_HEADERS, HEADERS, LAST_ID, PADDED, PRIORITY_FLAG, header_struct
from proxy.http.h2.frames.sequence import Sequence
from proxy.http.h2.frames.settings import H2Settings
from proxy.http.h2.hpack.decoder import Decoder
from proxy.http.h2.keepalive import Keepalive
from proxy.http.h2.leaving import OVER
from proxy.http.h2.stream.flow import overrun
from proxy.http.h2.stream.state import NEVER_OPENED, ON_DATA, RESET_STREAM
from proxy.http.h2.stream.streams import Streams

_unpack_header: Final = header_struct.unpack_from

SELF_DEPENDENT: Final = 256
"""Beside the flags of a HEADERS frame: its stream depends on itself (RFC 9113 section 5.3.2 keeps the rule's form)."""

_HEAD_SHARE: Final = limits.TURN_FRAMES // limits.TURN_HEADS - 1
"""What a request's head takes of a turn's share beside one frame's."""
_RESPONSE_SHARE: Final = _HEAD_SHARE // 2
"""The same of a response's head, which is not routed."""
_BLOCK_SHIFT: Final = 5
"""A head takes one more frame's share for every 32 octets of its block, which may hold as many fields: 16 KiB of header
blocks use up a turn. A block over several frames ends its turn anyway."""
_FRAMING_FLAGS: Final = END_HEADERS | PADDED | PRIORITY_FLAG


class H2Connection(Streams):
    __slots__ = (
        "decoder", "_sequence", "_keepalive", "_is_stopped", "_unread_heads", "_buffer", "_preface", "_max_frame_bytes",
    )  # fmt: skip

    def __init__(
        self, wire: Wire, settings: H2Settings, wheel: Wheel | None, clock: Clock | None, is_client: bool
    ) -> None:
        super().__init__(wire, settings, wheel, clock, is_client)
        self.decoder = Decoder()
        self._sequence = Sequence(wheel)
        self._keepalive: Keepalive | None = None
        self._is_stopped = False
        """Whether reading is paused until the peer reads what we sent."""
        self._unread_heads = 0
        """The requests that came while the peer read nothing. Some were answered at once by a head alone, and are not
        streams.
        """
        self._buffer = b""
        self._max_frame_bytes = settings.max_frame_bytes
        self._preface = b"" if is_client else frame.PREFACE
        wire.write(settings.opening(is_client))
        if settings.keepalive_interval_s is not None and wheel is not None:
            self._keepalive = Keepalive(wire, settings, wheel, self.streams, self._peer_is_silent)

    # ---- Codec

    def feed(self, data: bytes) -> None:
        if self.leaving.state == OVER:
            return
        keepalive = self._keepalive
        if keepalive is not None:
            keepalive.has_heard = True
        if self._buffer:
            data = self._buffer + data
            # Appended and not read: the frames before it have not had their turn, and order decides in HTTP/2.
            if self._waits_for_turn or self._is_stopped:
                self._buffer = data
                return
        try:
            self._buffer = self._read_frames(data)
        except ProtocolError as error:
            self.fail(error.reason)

    def eof(self) -> None:
        self.retire()
        self.end_streams(Reason.PEER_CLOSED)
        self.wire.abort(Reason.PEER_CLOSED)

    def writable(self, is_writable: bool) -> None:
        self.flow.is_writable = is_writable
        if is_writable:
            self._unread_heads = 0
            self.pump_waiting()
            if self._is_stopped:
                self._is_stopped = False
                self.wait_turn()

    def lost(self, reason: Reason) -> None:
        self.leaving.finish()
        self._sequence.stop()
        self.stop_asking()
        self.encoder.close()
        self.decoder.close()
        self.retire()
        self.end_streams(reason)

    # ---- turns

    def step(self) -> None:
        self._waits_for_turn = False
        self.tell_ends()
        self.pump_waiting()
        if not self._waits_for_turn:
            self.feed(b"")
        if not self._waits_for_turn and not self._is_stopped:
            self.wire.resume_reading()

    # ---- what the roles add

    def receive_block(self, block: bytes, flags: int, stream_id: int) -> None:
        raise NotImplementedError

    def refuse_stream(self, stream_id: int, code: int) -> None:
        """Reset a stream that is not here."""
        self.wire.write(frame.rst_stream(stream_id, code))
        self.note_reset(stream_id)

    # ---- frames

    def _read_frames(self, data: bytes) -> bytes:
        position = self._read_preface(data) if self._preface else 0
        size = len(data)
        # Declared, since what comes out of `struct` is Any, which the compiler would compare and shift as objects.
        length_and_kind: int
        flags: int
        stream_id: int
        share = limits.TURN_FRAMES
        enough_s = spent.s + limits.TURN_MATCH_S
        head_share = _RESPONSE_SHARE if self.is_client else _HEAD_SHARE
        streams = self.streams
        sequence = self._sequence
        leaving = self.leaving
        longest = self._max_frame_bytes
        start = position + 9
        while start <= size and leaving.state != OVER:
            if share <= 0 or spent.s > enough_s:
                self.wait_turn()
                break
            length_and_kind, flags, stream_id = _unpack_header(data, position)
            length = length_and_kind >> 8
            if length > longest:
                raise ProtocolError(f"frame of {length} octets", Reason.FRAME_SIZE)
            end = start + length
            if end > size:
                break
            kind = length_and_kind & 255
            stream_id &= LAST_ID
            if sequence.awaited:
                sequence.check(kind, flags, stream_id)
            share -= 1
            if kind == DATA:
                stream = streams.get(stream_id)
                if stream is not None:
                    stream.receive_data(data[start:end], flags)
                else:
                    self._receive_late_data(data[start:end], flags, stream_id)
            elif kind == HEADERS:
                if not self.flow.is_writable and not self.is_client and self._stops():
                    break
                share -= head_share + (length >> _BLOCK_SHIFT)
                if flags & _FRAMING_FLAGS == END_HEADERS and stream_id:
                    self.receive_block(data[start:end], flags, stream_id)
                else:
                    self._receive_headers(data[start:end], flags, stream_id)
            else:
                share -= self._receive_rare(kind, flags, stream_id, data[start:end])
            position = end
            start = end + 9
        return data[position:] if position < size else b""

    def _read_preface(self, data: bytes) -> int:
        """Where the first frame begins; the end of the data if the preface is not all there yet."""
        size = len(data)
        preface = self._preface
        if not data.startswith(preface[:size]):
            raise ProtocolError("no HTTP/2 preface")
        self._preface = preface[size:]
        return min(size, len(preface))

    def _receive_late_data(self, payload: bytes, flags: int, stream_id: int) -> None:
        """DATA for a stream that does not exist."""
        size = len(payload)
        credit = self.flow.credit
        # The sender has counted it against its windows whether or not the stream is there, so we must too.
        credit.window -= size
        if credit.window < 0:
            raise overrun()
        if flags & PADDED:
            frame.unpadded(payload, PADDED)
        verdict = ON_DATA[self.ids.state_of(stream_id)]
        if verdict == NEVER_OPENED:
            raise control.never_opened(stream_id)
        self.floods.charge_silent(1)
        self.flow.waste(size)
        # Never answered for a stream that we reset lately: the peer may not know yet, and would be punished for our
        # doing.
        if verdict == RESET_STREAM:
            self.refuse_stream(stream_id, code_of(Reason.STREAM_CLOSED))
            self.floods.charge_reset()

    def _receive_headers(self, payload: bytes, flags: int, stream_id: int) -> None:
        if not stream_id:
            raise ProtocolError("HEADERS on stream 0")
        if flags & (PADDED | PRIORITY_FLAG):
            unpadded = frame.unpadded(payload, flags)
            if flags & PRIORITY_FLAG and control.dependency(payload, 1 if flags & PADDED else 0) == stream_id:
                flags |= SELF_DEPENDENT
            payload = unpadded
        if flags & END_HEADERS:
            self.receive_block(payload, flags, stream_id)
        else:
            self._sequence.begin(payload, flags, stream_id, self.opening_timed_out)

    def _receive_rare(self, kind: int, flags: int, stream_id: int, payload: bytes) -> int:
        """A frame that is neither DATA nor HEADERS. Returns what it takes of the turn's share beside one frame's."""
        if kind == frame.CONTINUATION:
            sequence = self._sequence
            self.floods.charge_silent(1)
            block = sequence.proceed(payload, flags)
            if block is None:
                return _HEAD_SHARE
            self.receive_block(block, sequence.flags, stream_id)
            return limits.TURN_FRAMES
        # A WINDOW_UPDATE or SETTINGS may let thousands of frames leave; they are work of this turn like those that
        # came.
        sent_frames = self.backlog.frames
        control.receive(self, kind, flags, stream_id, payload)
        return _HEAD_SHARE if kind == frame.RST_STREAM else self.backlog.frames - sent_frames

    def _stops(self) -> bool:
        """Stop reading if too much waits for a peer that does not read; otherwise one more head is looked at."""
        if len(self.streams) >= limits.UNREAD_STREAMS or self._unread_heads >= limits.UNREAD_STREAMS:
            self._is_stopped = True
            self.wire.pause_reading()
        else:
            self._unread_heads += 1
        return self._is_stopped

    # ---- the end

    def fail(self, reason: Reason) -> None:
        """End the connection, whose peer broke the rules or is silent."""
        leaving = self.leaving
        wheel = leaving.wheel
        if not leaving.reach(OVER):
            return
        leaving.finish()
        self._sequence.stop()
        self.stop_asking()
        self._buffer = b""
        note_flood(reason)
        self.wire.write(frame.goaway(0 if self.is_client else self.ids.last, code_of(reason)))
        self.retire()
        self.end_streams(reason)
        if wheel is None or reason is Reason.PEER_SILENT:
            self.wire.abort(reason)
        else:
            self.settings.count_fault(reason)
            Linger(
                self.wire, wheel, self.flow.is_writable, reason
            )  # or the GOAWAY would be lost behind what still comes

    def stop_asking(self) -> None:
        keepalive = self._keepalive
        if keepalive is not None:
            self._keepalive = None
            keepalive.stop()

    def opening_timed_out(self) -> None:
        self.fail(Reason.SLOW_OPENING)

    def _peer_is_silent(self) -> None:
        self.fail(Reason.PEER_SILENT)
