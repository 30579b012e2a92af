"""H2Client: a dialled HTTP/2 connection; H2ClientStream: one request on it.

Law: the pool is told when room comes and when it goes for good. A stream
that the peer refused, by GOAWAY or REFUSED_STREAM, is named so: it alone
may be tried again without asking what was sent.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.errors import ProtocolError, report_fault
from proxy.core.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.h2 import frame
from proxy.http.h2.connection import H2Connection
from proxy.http.h2.server import content_length
from proxy.http.h2.stream import H2Stream
from proxy.http.head import UNKNOWN, RequestHead, ResponseHead
from proxy.http.headers import CONTENT_LENGTH, DATE, L5D, PSEUDO, Field, field
from proxy.http.pool import Pool

_LAST_ID: Final = 0x7FFFFFFF


class H2Client(H2Connection):
    __slots__ = ("_pool", "_max_streams", "_heads")

    def __init__(self, wire: Wire, pool: Pool) -> None:
        wire.write(frame.PREFACE)
        super().__init__(wire, b"")
        self._pool = pool
        self._max_streams = 100
        """Until the peer's SETTINGS say otherwise (RFC 9113 section 6.5.2 recommends no less)."""
        self._heads: dict[bytes, ResponseHead] = {}
        self.last_id = -1

    # ---- ClientConnection

    def open(self, exchange: Exchange) -> H2ClientStream:
        stream_id = self.last_id = self.last_id + 2
        stream = H2ClientStream(self, stream_id)
        stream.exchange = exchange
        self.streams[stream_id] = stream
        if self.has_room():
            self._pool.release(self)
        return stream

    def has_room(self) -> bool:
        return len(self.streams) < self._max_streams and not self.is_going_away and self.last_id < _LAST_ID

    def close(self) -> None:
        self._pool.retire(self)
        self.is_going_away = True
        if not self.streams:
            self.wire.end()

    # ---- H2Connection

    def forget(self, stream: H2Stream) -> None:
        was_full = len(self.streams) >= self._max_streams
        super().forget(stream)
        if was_full and self.has_room():
            self._pool.release(self)

    def lost(self, reason: Reason) -> None:
        self._pool.retire(self)
        super().lost(reason)

    def receive_max_streams(self, count: int) -> None:
        was_full = len(self.streams) >= self._max_streams
        self._max_streams = count
        if was_full and self.has_room():
            self._pool.release(self)

    def receive_goaway(self, last_id: int) -> None:
        self._pool.retire(self)
        for stream in list(self.streams.values()):
            if stream.id > last_id:
                stream.state = 3
                self.forget(stream)
                stream.deliver_reset(Reason.PEER_REFUSED)
        if not self.streams:
            self.wire.end()

    def receive_block(self, block: bytes, end: bool, stream_id: int) -> None:
        template = self._heads.get(block)
        fields = self._decode(block) if template is None else None
        stream = self.streams.get(stream_id)
        if stream is None or stream.state >= 2:
            self._check_known(stream_id)
            return
        assert isinstance(stream, H2ClientStream)
        try:
            if stream.has_head:
                if not end:
                    raise ProtocolError("second response head")
                stream.receive_trailers(fields if fields is not None else self.decoder.decode(block))
            else:
                head = template.copy() if template is not None else self._head(block, fields or [])
                stream.receive_head(head, end)
        except ProtocolError as error:
            self._reset_stream(stream, error.reason)
        except Exception:
            report_fault()
            self._reset_stream(stream, Reason.INTERNAL)

    def _decode(self, block: bytes) -> list[Field]:
        fields = self.decoder.decode(block)
        if self.decoder.has_changed and self._heads:
            self._heads.clear()
        return fields

    def _head(self, block: bytes, fields: list[Field]) -> ResponseHead:
        head = response_of(fields)
        if self.decoder.is_familiar:
            if len(self._heads) >= limits.CACHED_BLOCKS:
                self._heads.clear()
            self._heads[block] = head.copy()
        return head


class H2ClientStream(H2Stream):
    __slots__ = ("has_head", "_is_head_request")

    def __init__(self, connection: H2Connection, stream_id: int) -> None:
        super().__init__(connection, stream_id)
        self.has_head = False
        self._is_head_request = False

    def receive_head(self, head: ResponseHead, end: bool) -> None:
        exchange = self.exchange
        if head.status < 200:
            if end or head.status == 101:
                raise ProtocolError("bad informational response")
            if exchange is not None:
                exchange.response_informational(head)
            return
        self.has_head = True
        if end:
            if head.body_size > 0 and not self._is_head_request and head.status != 304:
                raise ProtocolError("content-length without a body")
            self.exchange = None
            self.received_end()
        else:
            self.expect(head.body_size)
        if exchange is not None:
            exchange.response_head(head, end)

    # ---- ClientStream

    def send_head(self, head: RequestHead, end: bool) -> None:
        if head.upgrade:
            head.upgrade = b""  # HTTP/2 has no upgrade (RFC 9113 section 8.6); the request goes as if none was asked
            end = True
        self._is_head_request = head.method == b"HEAD"
        connection = self.connection
        fields = (
            _methods.get(head.method) or _pseudo(_methods, b":method", head.method),
            _schemes.get(head.scheme) or _pseudo(_schemes, b":scheme", head.scheme),
            _authorities.get(head.authority) or _pseudo(_authorities, b":authority", head.authority),
            _paths.get(head.path) or _pseudo(_paths, b":path", head.path),
            *head.fields,
        )
        if head.takes_trailers:
            fields += (_TE_TRAILERS,)
        connection.wire.write(frame.header_frames(self.id, connection.encoder.encode(fields), end))
        if end:
            self.sent_end()

    # ---- H2Stream

    def deliver_data(self, data: bytes, end: bool) -> None:
        exchange = self.exchange
        if exchange is not None:
            if end:
                self.exchange = None
            exchange.response_data(data, end)

    def deliver_trailers(self, fields: list[Field]) -> None:
        exchange = self.exchange
        self.exchange = None
        if exchange is not None:
            exchange.response_trailers(fields)

    def deliver_reset(self, reason: Reason) -> None:
        exchange = self.exchange
        self.exchange = None
        if exchange is not None:
            exchange.response_reset(reason)

    def tell_blocked(self) -> None:
        exchange = self.exchange
        if exchange is not None:
            exchange.client_blocked()

    def tell_ready(self) -> None:
        exchange = self.exchange
        if exchange is not None:
            exchange.client_ready()


_Fields = dict[bytes, Field]
_methods: Final[_Fields] = {}
_schemes: Final[_Fields] = {}
_authorities: Final[_Fields] = {}
_paths: Final[_Fields] = {}


def _pseudo(fields: _Fields, name: bytes, value: bytes) -> Field:
    """The field of a pseudo-header whose value was not met before."""
    if len(fields) >= limits.INTERNED_FIELDS:
        fields.clear()
    found = fields[value] = field(name, value)
    return found


_TE_TRAILERS: Final = field(b"te", b"trailers")


def response_of(fields: list[Field]) -> ResponseHead:
    """A response head from its decoded fields, or ProtocolError if they do not make one."""
    status = 0
    regular: list[Field] = []
    size = 0
    length = UNKNOWN
    has_l5d = has_date = False
    for one in fields:
        size += one.size
        kind = one.kind
        if not kind:
            regular.append(one)
        elif kind == PSEUDO:
            value = one.value
            if one.name != b":status" or status or regular or len(value) != 3 or not value.isdigit():
                raise ProtocolError("bad pseudo-header")
            status = int(value)
        elif kind == CONTENT_LENGTH:
            length = content_length(one, length)
            regular.append(one)
        elif kind == L5D:
            has_l5d = True
            regular.append(one)
        elif kind == DATE:
            has_date = True
            regular.append(one)
        else:
            raise ProtocolError("field that HTTP/2 forbids")
    if size > limits.HEAD_BYTES or len(fields) > limits.HEAD_FIELDS:
        raise ProtocolError("head too long", Reason.OVER_LIMIT)
    if status < 100:
        raise ProtocolError("no status")
    head = ResponseHead(status, regular, length)
    head.has_l5d = has_l5d
    head.has_date = has_date
    return head
