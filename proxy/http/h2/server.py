"""H2Server: an accepted HTTP/2 connection; H2ServerStream: one request on it.

Law: a request head is judged as a whole (RFC 9113 section 8.3) when its
block is new, and remembered by the block's octets for as long as the
decoder's table stands still.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.errors import ProtocolError, report_fault
from proxy.core.reason import Reason
from proxy.http.exchange import Clock, Exchange, Stage
from proxy.http.h2 import frame
from proxy.http.h2.connection import H2Connection
from proxy.http.h2.frame import CODES
from proxy.http.h2.stream import CLOSED, REMOTE_ENDED, H2Stream
from proxy.http.head import HTTP_2, UNKNOWN, RequestHead, ResponseHead
from proxy.http.headers import CONTENT_LENGTH, DATE, HOST, L5D, PSEUDO, TE, Field, field

_PSEUDO: Final = {b":method": 0, b":scheme": 1, b":authority": 2, b":path": 3}


class H2Server(H2Connection):
    __slots__ = ("_stage", "_clock", "_heads")

    def __init__(self, wire: Wire, stage: Stage, clock: Clock) -> None:
        super().__init__(wire, frame.PREFACE)
        self._stage = stage
        self._clock = clock
        self._heads: dict[bytes, RequestHead] = {}

    def receive_block(self, block: bytes, end: bool, stream_id: int) -> None:
        if stream_id <= self.last_id:
            self._receive_trailers(block, end, stream_id)
            return
        if not stream_id & 1:
            raise ProtocolError("even stream from a client")
        self.last_id = stream_id
        template = self._heads.get(block)
        fields = self._decode(block) if template is None else []
        try:
            head = template.copy() if template is not None else self._judge(block, fields)
        except ProtocolError as error:
            self.wire.write(frame.rst_stream(stream_id, CODES[error.reason]))
            return
        if self.is_going_away or len(self.streams) >= limits.STREAMS:
            self.wire.write(frame.rst_stream(stream_id, CODES[Reason.PEER_REFUSED]))
            return
        stream = H2ServerStream(self, stream_id)
        self.streams[stream_id] = stream
        try:
            stream.receive_head(head, end, self._stage, self._clock())
        except ProtocolError as error:
            self._reset_stream(stream, error.reason)
        except Exception:
            report_fault()
            self._reset_stream(stream, Reason.INTERNAL)

    def receive_goaway(self, last_id: int) -> None:
        """A client that goes away still gets its answers."""

    def _receive_trailers(self, block: bytes, end: bool, stream_id: int) -> None:
        fields = self._decode(block)
        stream = self.streams.get(stream_id)
        if stream is None or stream.state >= 2:
            return  # reset by us while they were under way
        if not end:
            self._reset_stream(stream, Reason.PROTOCOL_ERROR)
            return
        try:
            stream.receive_trailers(fields)
        except ProtocolError as error:
            self._reset_stream(stream, error.reason)
        except Exception:
            report_fault()
            self._reset_stream(stream, Reason.INTERNAL)

    def _judge(self, block: bytes, fields: list[Field]) -> RequestHead:
        head = request_of(fields)
        if self.decoder.is_familiar:
            if len(self._heads) >= limits.CACHED_BLOCKS:
                self._heads.clear()
            self._heads[block] = head.copy()
        return head

    def _decode(self, block: bytes) -> list[Field]:
        fields = self.decoder.decode(block)
        if self.decoder.has_changed and self._heads:
            self._heads.clear()
        return fields


class H2ServerStream(H2Stream):
    __slots__ = ()

    def receive_head(self, head: RequestHead, end: bool, stage: Stage, now: float) -> None:
        if end:
            if head.body_size > 0:
                raise ProtocolError("content-length without a body")
            head.body_size = 0
            self.received_end()
        else:
            self.expect(head.body_size)
        exchange = self.exchange = Exchange(self, head, now)
        exchange.request_head(stage, end)

    # ---- ServerStream

    def close_connection(self) -> None:
        self.connection.close()

    def send_informational(self, head: ResponseHead) -> None:
        self._send_block(head, False)

    def send_head(self, head: ResponseHead, end: bool) -> None:
        self._send_block(head, end)
        if end:
            self.sent_end()

    def sent_end(self) -> None:
        """The response is complete; what the client still sends, nobody wants (RFC 9113 section 8.1)."""
        self.exchange = None
        if self.state == REMOTE_ENDED:
            self.state = CLOSED
            self.connection.forget(self)
        elif self.state != CLOSED:
            self.reset(Reason.EARLY_RESPONSE)

    def _send_block(self, head: ResponseHead, end: bool) -> None:
        connection = self.connection
        status = _status_fields.get(head.status) or _new_status_field(head.status)
        block = connection.encoder.encode((status, *head.fields))
        connection.wire.write(frame.header_frames(self.id, block, end))

    # ---- H2Stream

    def deliver_data(self, data: bytes, end: bool) -> None:
        exchange = self.exchange
        if exchange is not None:
            exchange.request_data(data, end)

    def deliver_trailers(self, fields: list[Field]) -> None:
        exchange = self.exchange
        if exchange is not None:
            exchange.request_trailers(fields)

    def deliver_reset(self, reason: Reason) -> None:
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


def _new_status_field(status: int) -> Field:
    found = _status_fields[status] = field(b":status", b"%d" % status)
    return found


def request_of(fields: list[Field]) -> RequestHead:
    """A request head from its decoded fields, or ProtocolError if they do not make one."""
    pseudo: list[bytes | None] = [None, None, None, None]
    regular: list[Field] = []
    size = 0
    length = UNKNOWN
    takes_trailers = False
    host = b""
    has_host = has_l5d = False
    for one in fields:
        size += one.size
        kind = one.kind
        if not kind:
            regular.append(one)
        elif kind == PSEUDO:
            slot = _PSEUDO.get(one.name)
            if slot is None or pseudo[slot] is not None or regular:
                raise ProtocolError("bad pseudo-header")
            pseudo[slot] = one.value
        elif kind == CONTENT_LENGTH:
            length = content_length(one, length)
            regular.append(one)
        elif kind == TE and one.value == b"trailers":
            takes_trailers = True
        elif kind == HOST:
            host = one.value
            has_host = True
            regular.append(one)
        elif kind == L5D:
            has_l5d = True
            regular.append(one)
        elif kind == DATE:
            regular.append(one)
        else:
            raise ProtocolError("field that HTTP/2 forbids")
    if size > limits.HEAD_BYTES or len(fields) > limits.HEAD_FIELDS:
        raise ProtocolError("head too long", Reason.OVER_LIMIT)
    method, scheme, authority, path = pseudo
    if not method or not scheme or not path:
        raise ProtocolError("pseudo-header missing")
    if b" " in path or b" " in method or path[0] not in b"/*":
        raise ProtocolError("bad pseudo-header value")
    head = RequestHead(method, scheme, authority or host, path, regular, length)
    head.takes_trailers = takes_trailers
    head.version = HTTP_2
    head.has_host = has_host
    head.has_l5d = has_l5d
    return head


def content_length(one: Field, known: int) -> int:
    if known != UNKNOWN:
        raise ProtocolError("second content-length")
    return int(one.value)
