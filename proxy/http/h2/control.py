"""The rare frames (SETTINGS, PING, PRIORITY, GOAWAY, RST_STREAM), and what time brings.

Law: every frame that `receive` gets has been charged for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.core import limits
from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason
from proxy.http.h2 import alarms, frame
from proxy.http.h2.codes import code_of, reason_of
from proxy.http.h2.frame import ACK, LAST_ID, goaway_struct, u32_struct
from proxy.http.h2.toll import Toll

if TYPE_CHECKING:
    from proxy.http.h2.connection import H2Connection

_KEEPALIVE: Final = b"sponson?"
"""What our keepalive PINGs carry; any frame at all answers them."""


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
    """The peer sent what carries nothing; dearer while it does not read our answers."""
    now = connection.now()
    toll = connection.control
    if toll is None:
        toll = connection.control = Toll(limits.CONTROL_FRAMES, Reason.CONTROL_FLOOD, now)
    toll.charge(cost if connection.is_writable else cost * 10, now)


def end_streams(connection: H2Connection, reason: Reason) -> None:
    """All of them, since the connection ends."""
    streams = list(connection.streams.values())
    connection.streams.clear()
    connection.blocked.clear()
    for stream in streams:
        stream.close()
        stream.deliver_reset(reason, code_of(reason))


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
    if is_rapid:
        connection.charge_reset()


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
    """SETTINGS_INITIAL_WINDOW_SIZE changed; windows may become negative (RFC 9113 section 6.9.2)."""
    streams = list(connection.streams.values())
    charge(connection, len(streams) >> 4)
    for stream in streams:
        stream.send_window += change
        if stream.send_window > frame.WINDOW_LIMIT:
            raise ProtocolError("window over 2^31-1", Reason.FLOW_CONTROL)
    for stream in streams:
        if stream.has_unsent():
            connection.pump(stream)


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
