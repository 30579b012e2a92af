"""The rare frames (all but DATA and HEADERS), what they cost their sender, and what time brings.

Every frame that `receive` gets has been charged for; the others charge for themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.core import limits
from proxy.core.errors import ProtocolError, report_fault
from proxy.core.reason import Reason
from proxy.http.h2 import alarms, frame
from proxy.http.h2.codes import code_of, reason_of
from proxy.http.h2.frame import ACK, END_HEADERS, LAST_ID, goaway_struct, u32_struct
from proxy.http.h2.toll import Toll

if TYPE_CHECKING:
    from proxy.http.h2.connection import H2Connection

NO_BLOCK: Final = 0
"""`block_id` of a connection on which no header block is open; else it is the stream whose block goes on in CONTINUATION."""
_RESET_COST: Final = 3
"""One of them comes back at once, since the stream has ended."""
_KEEPALIVE: Final = b"sponson?"
"""What our keepalive PINGs carry; any frame at all answers them."""


class OpenBlock:
    """A header block whose end has not come."""

    __slots__ = ("octets", "flags", "frames")

    def __init__(self, octets: bytes, flags: int) -> None:
        self.octets = octets
        self.flags = flags
        """Of its HEADERS frame."""
        self.frames = 0


def receive(connection: H2Connection, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
    """One frame that is neither of a stream nor a WINDOW_UPDATE. Unknown kinds are ignored."""
    if kind == frame.SETTINGS:
        _receive_settings(connection, flags, stream_id, payload)
    elif kind == frame.PING:
        _receive_ping(connection, flags, stream_id, payload)
    elif kind == frame.GOAWAY:
        if stream_id:
            raise ProtocolError("GOAWAY on a stream")
        if len(payload) < 8:
            raise ProtocolError("GOAWAY of fewer than 8 octets", Reason.FRAME_SIZE)
        last_id, code = goaway_struct.unpack_from(payload, 0)
        connection.receive_goaway(last_id & LAST_ID, code)
    elif kind == frame.PRIORITY:
        _receive_priority(connection, stream_id, payload)
    elif kind == frame.PUSH_PROMISE:
        raise ProtocolError("PUSH_PROMISE, which nobody may send us")


def charge(connection: H2Connection, cost: int) -> None:
    """The peer sent what carries nothing and wants an answer; dearer while it does not read our answers."""
    charge_silent(connection, cost if connection.is_writable else cost * 10)


def charge_silent(connection: H2Connection, cost: int) -> None:
    """The peer sent what carries nothing and is answered by nothing. What it owes is reckoned here alone: progress costs
    nothing while it is made."""
    now = connection.now()
    toll = connection.control
    if toll is None:
        toll = connection.control = Toll(limits.CONTROL_FRAMES, Reason.CONTROL_FLOOD, now, _progress(connection))
    toll.settle(_progress(connection))
    toll.charge(cost, now)


def charge_reset(connection: H2Connection) -> None:
    """A stream ended early by the peer's doing: it was reset without need, or the peer made us reset it."""
    now = connection.now()
    resets = connection.resets
    if resets is None:
        resets = connection.resets = Toll(2 * connection.settings.max_early_resets, Reason.RESET_FLOOD, now)
    resets.charge(_RESET_COST, now)


def _progress(connection: H2Connection) -> int:
    """All that was done for this peer so far, in units of the toll."""
    return (
        connection.moved_bytes() // limits.PROGRESS_BYTES
        + connection.sent_messages * limits.PROGRESS_MESSAGE
        + connection.ended_streams * limits.PROGRESS_STREAM
        - connection.backlog.frames
    )


def end_streams(connection: H2Connection, reason: Reason) -> None:
    """All of them, since the connection ends; their exchanges hear of it a share at a time."""
    streams = list(connection.streams.values())
    connection.streams.clear()
    connection.backlog.clear()
    code = code_of(reason)
    for stream in streams:
        stream.close()
    connection.ending += [(stream, reason, code) for stream in streams]
    tell_ends(connection)


def tell_ends(connection: H2Connection) -> None:
    """Tell the exchanges of streams that are over, as many as one turn allows; the rest in later turns."""
    ending = connection.ending
    if not ending:
        return
    share = ending[: limits.TURN_HEADS]
    del ending[: limits.TURN_HEADS]
    if ending:
        connection.wait_turn()
    for stream, reason, code in share:
        try:
            stream.deliver_end(reason, code)
        except Exception:
            report_fault()


def receive_rst_stream(connection: H2Connection, payload: bytes, stream_id: int) -> None:
    """Charged as rapid only if nothing of the answer was there yet: work that was begun for nothing."""
    if len(payload) != 4:
        raise ProtocolError("RST_STREAM is not 4 octets", Reason.FRAME_SIZE)
    stream = connection.streams.get(stream_id)
    if stream is None:
        connection.check_known(stream_id)
        charge(connection, 1)
        return
    code = u32_struct.unpack(payload)[0]
    exchange = stream.exchange
    is_rapid = exchange is not None and exchange.response is None
    stream.close()
    connection.forget(stream)
    stream.deliver_reset(reason_of(code), code)
    if is_rapid and not connection.is_client:
        charge_reset(connection)


def receive_window_update(connection: H2Connection, payload: bytes, stream_id: int) -> None:
    if len(payload) != 4:
        raise ProtocolError("WINDOW_UPDATE is not 4 octets", Reason.FRAME_SIZE)
    increment: int = u32_struct.unpack(payload)[0] & frame.WINDOW_LIMIT
    charge_silent(connection, 1)
    if stream_id == 0:
        connection.send_window += increment
        connection.allowed_bytes += increment
        if not increment:
            raise ProtocolError("window increment of 0")
        if connection.send_window > frame.WINDOW_LIMIT:
            raise ProtocolError("window over 2^31-1", Reason.FLOW_CONTROL)
        connection.backlog.pump_waiting(connection)
        return
    stream = connection.streams.get(stream_id)
    if stream is None:
        connection.check_known(stream_id)
        return
    stream.send_window += increment
    if not increment:
        connection.reset_stream(stream, Reason.PROTOCOL_ERROR)
    elif stream.send_window > frame.WINDOW_LIMIT:
        connection.reset_stream(stream, Reason.FLOW_CONTROL)
    elif stream.has_unsent():
        connection.backlog.pump(stream)


def receive_continuation(connection: H2Connection, payload: bytes, flags: int, stream_id: int) -> None:
    block = connection.block
    if block is None or connection.block_id != stream_id:
        raise ProtocolError("CONTINUATION without HEADERS")
    block.frames += 1
    if len(block.octets) + len(payload) > limits.HEADER_BLOCK_BYTES or block.frames > limits.CONTINUATIONS:
        raise ProtocolError("header block without end", Reason.HEADER_FLOOD)
    charge_silent(connection, 1)
    block.octets += payload
    if flags & END_HEADERS:
        connection.block = None
        connection.block_id = NO_BLOCK
        connection.alarms.disarm(alarms.OPENING)
        connection.receive_block(block.octets, block.flags, stream_id)


def dependency(payload: bytes, start: int) -> int:
    """The stream that a PRIORITY's payload depends on."""
    number: int = u32_struct.unpack_from(payload, start)[0] & LAST_ID
    return number


def _receive_settings(connection: H2Connection, flags: int, stream_id: int, payload: bytes) -> None:
    if stream_id:
        raise ProtocolError("SETTINGS on a stream")
    if len(payload) % 6 or (flags & ACK and payload):
        raise ProtocolError("SETTINGS of a wrong size", Reason.FRAME_SIZE)
    if flags & ACK:
        connection.stream_window = connection.settings.stream_window_bytes
        return
    peer = connection.peer
    peer.apply(payload, connection.is_client)
    connection.wire.write(frame.SETTINGS_ACK)
    encoder = connection.encoder
    encoder.limit_table(peer.header_table_bytes)
    encoder.limit_list(peer.max_header_list_bytes)
    change = peer.initial_window_bytes - connection.peer_window
    if change:
        connection.peer_window = peer.initial_window_bytes
        _shift_windows(connection, change)
    connection.settings_changed()


def _shift_windows(connection: H2Connection, change: int) -> None:
    """SETTINGS_INITIAL_WINDOW_SIZE changed; windows may become negative (RFC 9113 section 6.9.2).

    What the change lets out is sent in turn and a share at a time, like all that waits.
    """
    charge(connection, len(connection.streams) >> 4)
    backlog = connection.backlog
    for stream in connection.streams.values():
        stream.send_window += change
        if stream.send_window > frame.WINDOW_LIMIT:
            raise ProtocolError("window over 2^31-1", Reason.FLOW_CONTROL)
        if stream.has_unsent() and stream.send_window > 0:
            backlog.waiting[stream] = None
    backlog.pump_waiting(connection)


def _receive_ping(connection: H2Connection, flags: int, stream_id: int, payload: bytes) -> None:
    if stream_id:
        raise ProtocolError("PING on a stream")
    if len(payload) != 8:
        raise ProtocolError("PING is not 8 octets", Reason.FRAME_SIZE)
    if flags & ACK:
        connection.receive_pong(payload)
    else:
        connection.wire.write(frame.ping(payload, ACK))


def _receive_priority(connection: H2Connection, stream_id: int, payload: bytes) -> None:
    """Validated, then ignored."""
    if not stream_id:
        raise ProtocolError("PRIORITY on stream 0")
    is_short = len(payload) != 5
    if is_short or dependency(payload, 0) == stream_id:
        reason = Reason.FRAME_SIZE if is_short else Reason.PROTOCOL_ERROR
        stream = connection.streams.get(stream_id)
        if stream is None:
            raise ProtocolError("bad PRIORITY", reason)
        connection.reset_stream(stream, reason)


def alarm(connection: H2Connection, kind: int) -> None:
    """A deadline of the connection passed."""
    if kind == alarms.OPENING:
        connection.fail(Reason.SLOW_OPENING)
    elif kind == alarms.KEEPALIVE:
        _keep_alive(connection)
    elif kind == alarms.PONG:
        if connection.has_heard:
            _keep_alive(connection)
        else:
            connection.fail(Reason.PEER_SILENT)
    elif kind == alarms.STALL:
        _reset_stalled(connection)
    elif not connection.is_going_away:
        connection.go_away()
    elif not connection.streams:
        connection.wire.abort(Reason.COMPLETE)


def _keep_alive(connection: H2Connection) -> None:
    settings = connection.settings
    if not connection.has_heard and (connection.streams or settings.keepalive_while_idle):
        connection.wire.write(frame.ping(_KEEPALIVE))
        connection.alarms.arm(alarms.PONG, settings.keepalive_timeout_s)
    elif settings.keepalive_interval_s is not None:
        connection.has_heard = False
        connection.alarms.arm(alarms.KEEPALIVE, settings.keepalive_interval_s)


def _reset_stalled(connection: H2Connection) -> None:
    """A look every half of STALL_S: what has not moved between two is given up.

    Only messages that are complete: a stream whose endpoint still sends is held back as long as its client likes,
    with no more than a window's worth in memory, as without a proxy.
    """
    has_unsent = False
    for stream in list(connection.streams.values()):
        if not stream.has_unsent():
            continue
        has_unsent = True
        if stream.is_complete() and stream.is_stalled:
            stream.fail(Reason.STALLED)
        else:
            stream.is_stalled = stream.is_complete()
    if has_unsent:
        connection.alarms.arm(alarms.STALL, limits.STALL_S / 2)
