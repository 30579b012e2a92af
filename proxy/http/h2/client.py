"""H2Client: a dialled HTTP/2 connection; H2ClientStream: one request on it.

It tells its pool when it has room for streams and when it has none, for a while
or for good. A stream that the peer refused, by GOAWAY or REFUSED_STREAM, is
reported as such: it may be tried again whatever was sent.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.core import limits
from proxy.core.budget import Table
from proxy.core.codec import Wire
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Wheel
from proxy.http.attempt import Attempt
from proxy.http.ending.endings import code_of
from proxy.http.h2.connection import H2Connection
from proxy.http.h2.control import never_opened
from proxy.http.h2.frames import frame
from proxy.http.h2.frames.codes import ENHANCE_YOUR_CALM, REFUSED_STREAM
from proxy.http.h2.frames.frame import END_HEADERS, END_STREAM, HEADERS, LAST_ID, WHOLE_MESSAGE, header_struct
from proxy.http.h2.frames.settings import DEFAULT, H2Settings
from proxy.http.h2.heads import connect_fields, response_of, travelling
from proxy.http.h2.leaving import LAST_STREAMS
from proxy.http.h2.stream.state import (
    AFTER_SENT_END,
    BEGIN,
    CLOSED,
    HALF_CLOSED_LOCAL,
    NEVER_OPENED,
    ON_HEADERS,
    OPEN,
    RESET_STREAM,
)
from proxy.http.h2.stream.stream import H2Stream
from proxy.http.head import HTTP_2, TUNNEL, Renderings, RequestHead, ResponseHead
from proxy.http.headers import CONTENT_LENGTH, Field, field
from proxy.http.pool import Pool
from proxy.http.repeat.repeat import BEGUN, NOT_BEGUN
from proxy.http.stream import ClientStream

_ELSEWHERE: Final = -1
"""Instead of a code: the peer has not begun it, and another connection may be asked."""


class H2Client(H2Connection):
    __slots__ = ("_pool", "_heads", "_parked", "_own_streams")

    def __init__(self, wire: Wire, pool: Pool, settings: H2Settings = DEFAULT, wheel: Wheel | None = None) -> None:
        wire.write(frame.PREFACE)
        interval_s = settings.keepalive_interval_s
        if interval_s is not None and pool.patience > 1:
            settings = settings._replace(keepalive_interval_s=interval_s * pool.patience)
        super().__init__(wire, settings, wheel, None, True)
        self._pool = pool
        self._heads: dict[bytes, ResponseHead] = self.decoder.heads
        streams: Any = self.streams  # whose type says H2Stream
        self._own_streams: dict[int, H2ClientStream] = streams
        """`streams`, typed for this role: to ask each stream what it is would cost a call."""
        self._parked: list[tuple[H2ClientStream, RequestHead]] | None = None
        """Extended CONNECTs that wait for the peer's SETTINGS, which say whether it takes any."""

    # ---- ClientConnection

    @property
    def keep_alive_s(self) -> float:
        return 0.0

    def is_stale(self) -> bool:
        """The peer says GOAWAY before it closes."""
        return False

    def open(self, attempt: Attempt) -> None:
        stream_id = self.ids.last = self.ids.last + 2
        stream = H2ClientStream(self, stream_id, attempt)
        streams = self.streams
        streams[stream_id] = stream
        if len(streams) < self.peer.max_streams and self.leaving.state < LAST_STREAMS and stream_id < LAST_ID:
            self._pool.ready[self] = None
        elif stream_id >= LAST_ID:
            self.retire()
        else:
            self.is_full = True
        attempt.exchange.attach(stream, attempt.head)

    def has_room(self) -> bool:
        return (
            len(self.streams) < self.peer.max_streams and self.leaving.state < LAST_STREAMS and self.ids.last < LAST_ID
        )

    def close(self) -> None:
        self.retire()
        self.end_if_idle()

    # ---- H2Connection

    def room_came(self) -> None:
        if self.has_room():
            self.is_full = False
            self._pool.release(self)

    def retire(self) -> None:
        self.leaving.reach(LAST_STREAMS)
        self._pool.retire(self)

    def settings_changed(self) -> None:
        if self.has_room():
            self.is_full = False
            self._pool.release(self)
        else:
            self.is_full = True
            self._pool.hold(self)
        parked = self._parked
        if parked is not None:
            self._parked = None
            for stream, head in parked:
                stream.send_head(head, False)

    def park(self, stream: H2ClientStream, head: RequestHead) -> None:
        if self._parked is None:
            self._parked = []
        self._parked.append((stream, head))

    def receive_goaway(self, last_id: int, code: int) -> None:
        """Streams that the peer will not serve go once more over another connection if all of them is still at hand
        (RFC 9113 section 8.7); a peer that serves none at all would only refuse them again."""
        if code == ENHANCE_YOUR_CALM:
            self._pool.calm_down()
        self.retire()
        for stream in list(self.streams.values()):
            if stream.id > last_id:
                stream.close()
                self.forget(stream.id)
                self.ending.append((stream, Reason.PEER_REFUSED, _ELSEWHERE if last_id else REFUSED_STREAM))
        self.end_if_idle()
        self.tell_ends()

    def receive_block(self, block: bytes, flags: int, stream_id: int) -> None:
        end = flags & END_STREAM != 0
        template = self._heads.get(block)
        fields = self.decoder.decode(block) if template is None else None
        stream = self._own_streams.get(stream_id)
        verdict = ON_HEADERS[self.ids.state_of(stream_id) if stream is None else stream.state]
        if stream is None:
            if verdict == BEGIN or verdict == NEVER_OPENED:
                raise never_opened(stream_id)
            self.floods.charge(1)
            return
        if verdict == RESET_STREAM:
            self.reset_stream(stream, Reason.STREAM_CLOSED)
            return
        try:
            if stream.has_head:
                if not end:
                    raise ProtocolError("second response head")
                stream.receive_trailers(fields if fields is not None else self.decoder.decode(block))
            else:
                head = template if template is not None else self._head(block, fields or [])
                stream.receive_head(head, end)
        except Exception as error:
            self.fail_stream(stream, error)

    def _head(self, block: bytes, fields: list[Field]) -> ResponseHead:
        constant = self.decoder.constant
        if constant is not None:
            template: ResponseHead = constant.head or response_of(fields)
            constant.head = template
            if template.renderings is None and len(block) <= limits.REMEMBERED_TEXT_BYTES:
                template.renderings = Renderings()
            return template
        head = response_of(fields)
        if self.decoder.is_familiar and self.decoder.keep_head(block, head):
            head.renderings = Renderings()
        return head


class H2ClientStream(H2Stream, ClientStream):
    __slots__ = ("attempt", "has_head", "is_head_request")

    def __init__(self, connection: H2Connection, stream_id: int, attempt: Attempt) -> None:
        self.send_window = connection.flow.peer_window
        self.id = stream_id
        self.state = OPEN
        self.connection = connection
        self.attempt: Attempt | None = attempt
        self.is_tunnel = self.has_head = False
        self.is_head_request = False  # then the response has no body, whatever it says
        self.queue = self._credit = None
        self.held = self._pauses = self.body_left = 0  # no body before a head

    def detach(self) -> None:
        self.attempt = None

    def is_unanswered(self) -> bool:
        return False

    def receive_head(self, head: ResponseHead, end: bool) -> None:
        attempt = self.attempt
        status = head.status
        if status < 200:
            if end or status == 101:
                raise ProtocolError("bad informational response")
            if attempt is not None:
                attempt.exchange.response_informational(head)
            return
        self.has_head = True
        if self.is_tunnel:
            if status < 300:
                self._open_tunnel(head, end)
                return
            self._refuse_tunnel()
        is_bodiless = self.is_head_request or status == 204 or status == 304
        if end:
            if head.body_size > 0 and not is_bodiless:
                raise ProtocolError("content-length without a body")
            self.attempt = None
            self.received_end()
        else:
            self.body_left = 0 if is_bodiless else head.body_size
        if attempt is not None:
            attempt.response_head(head, end)

    # ---- ClientStream

    def send_head(self, head: RequestHead, end: bool) -> None:
        if head.wants_tunnel:
            if not self._may_send_tunnel(head):
                return
            if not self.is_tunnel:
                end = True
                head = head.with_fields(travelling(head.fields))
            elif head.version != HTTP_2:
                end = False  # an HTTP/1 request for a tunnel has no body; the tunnel's bytes come later
        if head.method == b"HEAD":
            self.is_head_request = True
        renderings = None if self.is_tunnel else head.renderings
        fields: tuple[Field, ...] = () if renderings is None else renderings.http2
        if not fields:
            fields = connect_fields(head) if self.is_tunnel else _fields_of(head)
            if head.takes_trailers:
                fields += (_TE_TRAILERS,)
            if renderings is not None:
                renderings.http2 = fields
        connection = self.connection
        block = connection.encoder.blocks.get(fields)
        if block is None:
            try:
                block = connection.encoder.encode(fields)
            except ProtocolError as error:
                self._give_up(error.reason)
                return
        size = len(block)
        if size <= limits.FRAME_BYTES:  # what `header_frames` does with a short one
            flags = WHOLE_MESSAGE if end else END_HEADERS
            connection.wire.write(header_struct.pack(size << 8 | HEADERS, flags, self.id) + block)
        else:
            connection.wire.write(frame.header_frames(self.id, block, end))
        if end:
            state = self.state = AFTER_SENT_END[self.state]  # what `sent_end` does
            if state == CLOSED:
                self.sent_end()
        elif connection.backlog.held_bytes > limits.BACKLOG_BYTES:
            connection.backlog.silence(self)

    def end_sending(self) -> bool:
        return False

    def _may_send_tunnel(self, head: RequestHead) -> bool:
        """Sets `_is_tunnel` if it goes as one; False if it does not go now."""
        if not head.upgrade:
            self.is_tunnel = True
            return True
        if head.version != HTTP_2:
            # An HTTP/1 upgrade belongs on an HTTP/1 connection; here the request goes as if none was asked for.
            return True
        connection = self.connection
        assert isinstance(connection, H2Client)
        peer = connection.peer
        if peer.takes_connect:
            self.is_tunnel = True
            return True
        if peer.has_spoken:
            self._give_up(Reason.UNSUPPORTED)
        else:
            connection.park(self, head)
        return False

    def _open_tunnel(self, head: ResponseHead, end: bool) -> None:
        head = head.with_fields([one for one in head.fields if one.kind != CONTENT_LENGTH])
        head.body_size = self.body_left = TUNNEL
        if end:
            self.received_end()
        attempt = self.attempt
        if attempt is not None:
            attempt.response_head(head, False)
            if end and self.attempt is attempt:
                attempt.exchange.response_data(b"", True)

    def _refuse_tunnel(self) -> None:
        """The tunnel was refused: send nothing more into it, and treat the response like any other."""
        self.is_tunnel = False
        if self.state != HALF_CLOSED_LOCAL and self.queue is None:
            self._send_frame(b"", 0, True)

    def _give_up(self, reason: Reason) -> None:
        """Nothing of the stream was sent, and nothing will be: a number may be skipped."""
        self.close()
        self.connection.forget(self.id)
        self.deliver_reset(reason, code_of(reason))

    # ---- H2Stream

    def deliver_data(self, data: bytes, end: bool) -> None:
        if not self.has_head:
            raise ProtocolError("DATA before a response head")
        attempt = self.attempt
        if attempt is not None:
            if end and not self.is_tunnel:
                self.attempt = None
            attempt.exchange.response_data(data, end)

    def deliver_trailers(self, fields: list[Field]) -> None:
        attempt = self.attempt
        self.attempt = None
        if attempt is not None:
            attempt.exchange.response_trailers(fields)

    def deliver_end(self, reason: Reason, code: int) -> None:
        if code == _ELSEWHERE:
            self._deliver(reason, REFUSED_STREAM, NOT_BEGUN)
        else:
            self._deliver(reason, code, BEGUN)

    def deliver_reset(self, reason: Reason, code: int) -> None:
        self._deliver(reason, code, BEGUN)

    def _deliver(self, reason: Reason, code: int, progress: int) -> None:
        attempt = self.attempt
        self.attempt = None
        if attempt is not None:
            attempt.response_reset(reason, code, progress)

    def tell_blocked(self) -> None:
        attempt = self.attempt
        if attempt is not None:
            attempt.exchange.client_blocked()

    def tell_ready(self) -> None:
        attempt = self.attempt
        if attempt is not None:
            attempt.exchange.client_ready()


_Fields = Table[bytes, Field]
_methods: Final[_Fields] = Table("http2_methods", limits.NAMES_BYTES, 550, 4)
_schemes: Final[_Fields] = Table("http2_schemes", limits.NAMES_BYTES, 550, 4)
_authorities: Final[_Fields] = Table("http2_authorities", limits.NAMES_BYTES, 550, 4)
_paths: Final[_Fields] = Table("http2_paths", limits.PATHS_BYTES, 550, 4)
_known_method: Final = _methods.recent.get
_known_scheme: Final = _schemes.recent.get
_known_authority: Final = _authorities.recent.get
_known_path: Final = _paths.recent.get


def _pseudo(fields: _Fields, name: bytes, value: bytes) -> Field:
    """Make the field of a pseudo-header whose value is not remembered."""
    found = fields.older.get(value)
    if found is None:
        found = field(name, value)
    fields.keep(value, found, len(value))
    return found


def _fields_of(head: RequestHead) -> tuple[Field, ...]:
    authority = head.authority
    if not authority:
        return (
            _known_method(head.method) or _pseudo(_methods, b":method", head.method),
            _known_scheme(head.scheme) or _pseudo(_schemes, b":scheme", head.scheme),
            _known_path(head.path) or _pseudo(_paths, b":path", head.path),
            *head.fields,
        )
    return (
        _known_method(head.method) or _pseudo(_methods, b":method", head.method),
        _known_scheme(head.scheme) or _pseudo(_schemes, b":scheme", head.scheme),
        _known_authority(authority) or _pseudo(_authorities, b":authority", authority),
        _known_path(head.path) or _pseudo(_paths, b":path", head.path),
        *head.fields,
    )


_TE_TRAILERS: Final = field(b"te", b"trailers")
