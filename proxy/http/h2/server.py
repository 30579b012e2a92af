"""H2Server: an accepted HTTP/2 connection; H2ServerStream: one request on it.

A request head is judged as a whole when its block is new, and remembered by
the block's octets until the decoder's table changes. Shutting down takes two
GOAWAYs (leaving.py).
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Clock
from proxy.core.loop.timers import Wheel
from proxy.http import orig_proto
from proxy.http.ending.endings import code_of
from proxy.http.ending.refusal import note_refusal
from proxy.http.ending.replies import answer, grpc_trailers, is_grpc
from proxy.http.exchange import Exchange, Stage
from proxy.http.fields.dates import date_field, needs_date
from proxy.http.h2.connection import SELF_DEPENDENT, H2Connection
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.codes import NO_ERROR, REFUSED_STREAM
from proxy.http.h2.frames.frame import END_HEADERS, END_STREAM, HEADERS, LAST_ID, WHOLE_MESSAGE, header_struct
from proxy.http.h2.frames.settings import DEFAULT, UNLIMITED, H2Settings
from proxy.http.h2.heads import as_http_1, is_answered, request_of, travelling
from proxy.http.h2.leaving import ANNOUNCED, LAST_STREAMS
from proxy.http.h2.stream.state import (
    AFTER_RECEIVED_END,
    AFTER_SENT_END,
    BEGIN,
    CLOSED,
    HALF_CLOSED_REMOTE,
    IGNORE,
    NEVER_OPENED,
    ON_HEADERS,
    OPEN,
    RESET_STREAM,
)
from proxy.http.h2.stream.stream import NO_WINDOW, H2Stream
from proxy.http.head import HTTP_2, TUNNEL, UNKNOWN, Renderings, RequestHead, ResponseHead
from proxy.http.headers import Field, field
from proxy.http.stream import ServerStream, keep

_DRAIN: Final = b"draining"
"""The payload of the PING behind the first GOAWAY."""
_UNACCEPTED: Final = 16
"""Cause of a pause beside those of http.stream: bytes for a tunnel that is not there yet."""


class H2Server(H2Connection):
    __slots__ = ("_stage", "_max_streams", "_heads")

    def __init__(
        self, wire: Wire, stage: Stage, clock: Clock, settings: H2Settings = DEFAULT, wheel: Wheel | None = None
    ) -> None:
        super().__init__(wire, settings, wheel, clock, False)
        self._stage = stage
        limit = settings.max_concurrent_streams
        self._max_streams = UNLIMITED if limit is None else limit
        self._heads: dict[bytes, RequestHead] = self.decoder.heads
        self._sequence.await_in_time(self.opening_timed_out)

    # ---- Codec

    def ask_to_leave(self) -> None:
        """A client that has asked for nothing yet may do so first: a GOAWAY before its first request would be a refusal."""
        if self.ids.last:
            self.close()

    def close(self) -> None:
        """Finish what runs, take nothing new."""
        if self.leaving.reach(ANNOUNCED):
            self.wire.write(frame.goaway(LAST_ID, NO_ERROR) + frame.ping(_DRAIN))
            self.leaving.give_time(self.leaving_timed_out)

    def is_idle(self) -> bool:
        return not self.streams

    # ---- H2Connection

    def receive_pong(self, payload: bytes) -> None:
        if payload == _DRAIN and self.leaving.state == ANNOUNCED:
            self.leaving.answered()
            self.go_away()

    def receive_goaway(self, last_id: int, code: int) -> None:
        """The client will open no further stream: what runs finishes, and the connection ends (as the h2 crate's)."""
        self.go_away()

    def go_away(self) -> None:
        if self.leaving.reach(LAST_STREAMS):
            self._max_streams = 0
            self.wire.write(frame.goaway(self.ids.last, NO_ERROR))
            self.end_if_idle()

    def receive_block(self, block: bytes, flags: int, stream_id: int) -> None:
        end = flags & END_STREAM != 0
        ids = self.ids
        if stream_id <= ids.last:
            self._receive_trailers(block, end, stream_id)
            return
        if not stream_id & 1:
            raise ProtocolError("even stream from a client")
        if stream_id == ids.last + 2:
            ids.last = stream_id
        else:
            ids.use(stream_id)
        template = self._heads.get(block)
        fields = self.decoder.decode(block) if template is None else []
        if flags & SELF_DEPENDENT:
            self._refuse(stream_id, end, ProtocolError("stream depends on itself"))
            return
        is_crowded = self.backlog.held_bytes > limits.BACKLOG_BYTES
        if len(self.streams) >= self._max_streams or (is_crowded and self.backlog.is_over()):
            self.floods.charge(1)
            self.refuse_stream(stream_id, REFUSED_STREAM)
            return
        try:
            head = template if template is not None else self._judge(block, fields)
        except ProtocolError as error:
            self._refuse(stream_id, end, error)
            return
        stream = H2ServerStream(self, stream_id)
        self.streams[stream_id] = stream
        try:
            stream.receive_head(head, end, self._stage, self.clock())
        except Exception as error:
            self.fail_stream(stream, error)
        if is_crowded and stream.state != CLOSED:
            self.backlog.silence(stream)

    def _receive_trailers(self, block: bytes, end: bool, stream_id: int) -> None:
        fields = self.decoder.decode(block)
        stream = self.streams.get(stream_id)
        verdict = ON_HEADERS[self.ids.state_of(stream_id) if stream is None else stream.state]
        if stream is None:
            if verdict == IGNORE:
                self.floods.charge(1)
                return
            if verdict == NEVER_OPENED or verdict == BEGIN:
                raise ProtocolError("stream numbers go backwards")
            raise ProtocolError("HEADERS on a stream that is over", Reason.STREAM_CLOSED)
        if verdict == RESET_STREAM:
            self.reset_stream(stream, Reason.STREAM_CLOSED)
            return
        if not end:
            self.reset_stream(stream, Reason.PROTOCOL_ERROR)
            return
        try:
            stream.receive_trailers(fields)
        except Exception as error:
            self.fail_stream(stream, error)

    def _refuse(self, stream_id: int, end: bool, error: ProtocolError) -> None:
        """A request that no stage gets to see: answered if it is well formed, reset if not."""
        note_refusal(error, self.settings.faults)
        if is_answered(error):
            fields = (_status_field(error.status), _NO_BODY, date_field(self.clock()))
            self.wire.write(frame.header_frames(stream_id, self.encoder.encode(fields), True))
            if not end:
                self.refuse_stream(stream_id, NO_ERROR)
        else:
            self.refuse_stream(stream_id, code_of(error.reason))
            self.floods.charge_reset()

    def _judge(self, block: bytes, fields: list[Field]) -> RequestHead:
        constant = self.decoder.constant
        if constant is not None:
            template: RequestHead = constant.head or request_of(fields)
            constant.head = template
            if template.renderings is None and len(block) <= limits.REMEMBERED_TEXT_BYTES:
                template.renderings = Renderings()
            return template
        head = request_of(fields)
        if self.decoder.is_familiar and self.decoder.keep_head(block, head):
            head.renderings = Renderings()
        return head


class H2ServerStream(H2Stream, ServerStream):
    __slots__ = ("exchange", "early")

    def __init__(self, connection: H2Connection, stream_id: int) -> None:
        self.send_window = connection.flow.peer_window
        self.id = stream_id
        self.state = OPEN
        self.connection = connection
        self.exchange: Exchange | None = None
        self.is_tunnel = False
        self.early: list[bytes] | None = None  # for a tunnel that is not accepted yet, no more than the stream's window
        self.queue = self._credit = None
        self.held = self._pauses = 0
        self.body_left = UNKNOWN

    def detach(self) -> None:
        self.exchange = None

    def is_unanswered(self) -> bool:
        exchange = self.exchange
        return exchange is not None and exchange.response is None

    def receive_head(self, head: RequestHead, end: bool, stage: Stage, now: float) -> None:
        if end:
            if head.body_size > 0:
                raise ProtocolError("content-length without a body")
            self.state = AFTER_RECEIVED_END[self.state]  # what `received_end` does with a new stream
        elif head.wants_tunnel:
            self.is_tunnel = True
            self.early = []
            self._pauses |= _UNACCEPTED
            if head.upgrade:
                head = as_http_1(head)
        else:
            self.body_left = head.body_size
        exchange = self.exchange = Exchange(self, head, now, self.connection.clock)
        exchange.request_head(stage, end)

    # ---- ServerStream

    def close_connection(self) -> None:
        self.connection.close()

    def send_informational(self, head: ResponseHead) -> None:
        if self.state == CLOSED:
            return
        connection = self.connection
        try:
            block = connection.encoder.encode((_status_field(head.status), *head.fields))
        except ProtocolError as error:
            self._too_long(error)
            return
        connection.wire.write(frame.header_frames(self.id, block, False))

    def send_head(self, head: ResponseHead, end: bool) -> None:
        if self.state == CLOSED:
            return
        exchange = self.exchange
        is_carried = exchange is not None and exchange.request.version != HTTP_2
        renderings = head.renderings
        fields: tuple[Field, ...] = ()
        if renderings is not None and not self.is_tunnel:
            fields = renderings.marked if is_carried else renderings.http2
        if not fields:
            fields = self._fields_of(head, is_carried)
        connection = self.connection
        block = connection.encoder.blocks.get(fields)
        if block is None:
            try:
                block = connection.encoder.encode(fields)
            except ProtocolError as error:
                self._too_long(error)
                return
        size = len(block)
        if size <= limits.FRAME_BYTES:  # what `header_frames` does with a short one
            flags = WHOLE_MESSAGE if end else END_HEADERS
            connection.wire.write(header_struct.pack(size << 8 | HEADERS, flags, self.id) + block)
        else:
            connection.wire.write(frame.header_frames(self.id, block, end))
        if end:
            self.sent_end()
        elif self.is_tunnel:
            self._deliver_early()

    def sent_end(self) -> None:
        """The response is complete; what the client still sends is not needed (RFC 9113 section 8.1)."""
        if self.is_tunnel and self.state < HALF_CLOSED_REMOTE:
            super().sent_end()
            return
        self.exchange = None
        if self.state == HALF_CLOSED_REMOTE:
            self.state = AFTER_SENT_END[self.state]  # and so it is closed
            self.send_window = NO_WINDOW
            self.connection.forget(self.id)
        elif self.state != CLOSED:
            self.reset(Reason.EARLY_RESPONSE)

    def reset(self, reason: Reason) -> None:
        """The code that an endpoint reset with reaches the client as it came."""
        exchange = self.exchange
        self.exchange = None
        if self.state != CLOSED:
            is_forwarded = reason is Reason.PEER_RESET or reason is Reason.PEER_REFUSED
            self.reset_with(exchange.reset_code if is_forwarded and exchange is not None else code_of(reason))

    def _fields_of(self, head: ResponseHead, is_carried: bool) -> tuple[Field, ...]:
        """What the client gets; `is_carried` if the request was HTTP/1. Kept with a remembered head that has a date."""
        renderings = None if self.is_tunnel else head.renderings
        status = head.status
        if self.is_tunnel:
            status = self._answer_tunnel(head)
            if head.body_size == TUNNEL:
                head = head.with_fields(travelling(head.fields))
        fields = (_status_fields.get(status) or _status_field(status), *head.fields)
        mark = orig_proto.RESPONSE_MARKS.get(head.version) if is_carried else None
        if mark is not None:
            if head.has_l5d:  # a mark that the app sent itself does not count
                fields = tuple([one for one in fields if one.name != orig_proto.NAME])
            fields += (mark,)
        if not head.has_date and needs_date(head):
            fields += (date_field(self.connection.clock()),)
        elif renderings is not None:
            if is_carried:
                renderings.marked = fields
            else:
                renderings.http2 = fields
        return fields

    def _too_long(self, error: ProtocolError) -> None:
        """The client does not take a head of this length: answer with a short one."""
        exchange = self.exchange
        connection = self.connection
        if exchange is not None and is_grpc(exchange.request):
            fields = (_status_field(200), *answer(exchange.request, 502, 8, "", False, False).fields)
        else:
            fields = (_status_field(502), _NO_BODY)
        block = connection.encoder.encode(fields)
        connection.wire.write(frame.header_frames(self.id, block, True))
        self.reset_with(NO_ERROR)
        self.exchange = None
        if exchange is not None:
            exchange.request_reset(error.reason)

    def refuse_trailers(self) -> None:
        exchange = self.exchange
        if exchange is None or not is_grpc(exchange.request):
            super().refuse_trailers()
            return
        self.connection.settings.count_fault(Reason.PEER_TRAILERS_LIMIT)
        self.send_trailers(grpc_trailers(8, Reason.PEER_TRAILERS_LIMIT.value))

    # ---- tunnels

    def _answer_tunnel(self, head: ResponseHead) -> int:
        """The status to send: what HTTP/1 calls 101 is 200 here (RFC 8441 section 5)."""
        if head.body_size == TUNNEL:
            self.resume_reading(_UNACCEPTED)
            return 200 if head.status == 101 else head.status
        self.is_tunnel = False
        self.early = None
        self.resume_reading(_UNACCEPTED)
        exchange = self.exchange
        if exchange is not None:
            exchange.request_ended = True
        return head.status

    def _deliver_early(self) -> None:
        early = self.early
        self.early = None
        exchange = self.exchange
        if early and exchange is not None:
            exchange.request_data(b"".join(early), self.state >= HALF_CLOSED_REMOTE)

    # ---- H2Stream

    def deliver_data(self, data: bytes, end: bool) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        if self.is_tunnel and self.early is not None and exchange.response is None:
            keep(self.early, data)
        else:
            exchange.request_data(data, end)

    def deliver_trailers(self, fields: list[Field]) -> None:
        exchange = self.exchange
        if exchange is not None:
            exchange.request_trailers(fields)

    def deliver_reset(self, reason: Reason, code: int) -> None:
        exchange = self.exchange
        self.exchange = None
        if exchange is not None:
            exchange.request_reset(reason)

    def tell_blocked(self) -> None:
        exchange = self.exchange
        if exchange is not None:
            exchange.server_blocked()

    def tell_ready(self) -> None:
        exchange = self.exchange
        if exchange is not None:
            exchange.server_ready()


_status_fields: Final[dict[int, Field]] = {}
_NO_BODY: Final = field(b"content-length", b"0")


def _status_field(status: int) -> Field:
    found = _status_fields[status] = field(b":status", b"%d" % status)
    return found
