"""The frames that are neither DATA nor part of a header block: what each does, and what it costs its sender."""

from __future__ import annotations

from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.codes import reason_of
from proxy.http.h2.frames.frame import ACK, LAST_ID, goaway_struct, u32_struct
from proxy.http.h2.stream.state import NEVER_OPENED, ON_OTHERS
from proxy.http.h2.stream.streams import Streams


def receive(connection: Streams, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
    """Handle one frame. Unknown kinds are ignored."""
    if kind == frame.WINDOW_UPDATE:
        _receive_window_update(connection, payload, stream_id)
        return
    if kind == frame.RST_STREAM:
        _receive_rst_stream(connection, payload, stream_id)
        return
    connection.floods.charge(1)
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
        raise ProtocolError("PUSH_PROMISE, which no peer may send us")


def never_opened(stream_id: int) -> ProtocolError:
    return ProtocolError(f"frame on stream {stream_id}, which was never opened")


def dependency(payload: bytes, start: int) -> int:
    """The stream that a PRIORITY's payload depends on."""
    number: int = u32_struct.unpack_from(payload, start)[0] & LAST_ID
    return number


def _receive_rst_stream(connection: Streams, payload: bytes, stream_id: int) -> None:
    """Charged as rapid only if nothing of the answer was there yet, so that work was begun for nothing."""
    if len(payload) != 4:
        raise ProtocolError("RST_STREAM is not 4 octets", Reason.FRAME_SIZE)
    stream = connection.streams.get(stream_id)
    if stream is None:
        _check_closed(connection, stream_id)
        connection.floods.charge(1)
        return
    code = u32_struct.unpack(payload)[0]
    is_rapid = stream.is_unanswered()
    stream.close()
    connection.forget(stream_id)
    stream.deliver_reset(reason_of(code), code)
    if is_rapid and not connection.is_client:
        connection.floods.charge_reset()


def _receive_window_update(connection: Streams, payload: bytes, stream_id: int) -> None:
    if len(payload) != 4:
        raise ProtocolError("WINDOW_UPDATE is not 4 octets", Reason.FRAME_SIZE)
    increment: int = u32_struct.unpack(payload)[0] & frame.WINDOW_LIMIT
    connection.floods.charge_silent(1)
    if stream_id == 0:
        connection.flow.widen(increment)
        connection.pump_waiting()
        return
    stream = connection.streams.get(stream_id)
    if stream is None:
        _check_closed(connection, stream_id)
        return
    stream.send_window += increment
    if not increment:
        connection.reset_stream(stream, Reason.PROTOCOL_ERROR)
    elif stream.send_window > frame.WINDOW_LIMIT:
        connection.reset_stream(stream, Reason.FLOW_CONTROL)
    elif stream.has_unsent():
        connection.backlog.pump(stream)


def _check_closed(connection: Streams, stream_id: int) -> None:
    if ON_OTHERS[connection.ids.state_of(stream_id)] == NEVER_OPENED:
        raise never_opened(stream_id)


def _receive_settings(connection: Streams, flags: int, stream_id: int, payload: bytes) -> None:
    if stream_id:
        raise ProtocolError("SETTINGS on a stream")
    if len(payload) % 6 or (flags & ACK and payload):
        raise ProtocolError("SETTINGS of a wrong size", Reason.FRAME_SIZE)
    flow = connection.flow
    if flags & ACK:
        flow.stream_window = connection.settings.stream_window_bytes
        return
    peer = connection.peer
    peer.apply(payload, connection.is_client)
    connection.wire.write(frame.SETTINGS_ACK)
    encoder = connection.encoder
    encoder.limit_table(peer.header_table_bytes)
    encoder.limit_list(peer.max_header_list_bytes)
    change = peer.initial_window_bytes - flow.peer_window
    if change:
        flow.peer_window = peer.initial_window_bytes
        _shift_windows(connection, change)
    connection.settings_changed()


def _shift_windows(connection: Streams, change: int) -> None:
    """SETTINGS_INITIAL_WINDOW_SIZE changed; windows may become negative (RFC 9113 section 6.9.2).

    What the change lets out is sent in turn and a share at a time, like all that waits.
    """
    connection.floods.charge(len(connection.streams) >> 4)
    backlog = connection.backlog
    for stream in connection.streams.values():
        stream.send_window += change
        if stream.send_window > frame.WINDOW_LIMIT:
            raise ProtocolError("window over 2^31-1", Reason.FLOW_CONTROL)
        if stream.has_unsent() and stream.send_window > 0:
            backlog.waiting[stream] = None
    connection.pump_waiting()


def _receive_ping(connection: Streams, flags: int, stream_id: int, payload: bytes) -> None:
    if stream_id:
        raise ProtocolError("PING on a stream")
    if len(payload) != 8:
        raise ProtocolError("PING is not 8 octets", Reason.FRAME_SIZE)
    if flags & ACK:
        connection.receive_pong(payload)
    else:
        connection.wire.write(frame.ping(payload, ACK))


def _receive_priority(connection: Streams, stream_id: int, payload: bytes) -> None:
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
