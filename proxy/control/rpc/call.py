"""Call: one gRPC call as its caller sees it; CallStream: the call on the wire, as the server side of an Exchange.

The caller gets messages in order and the end exactly once, and nothing after
`cancel`. A call that never began (the connection could not be made, or the peer
refused the stream) goes back to the channel, which tries again; the caller only
sees a delay. A stream that its call has left makes no further callbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError, Message

from proxy.api.services import Method
from proxy.balance.load.load import ANSWERED, BROKEN, GIVEN_UP
from proxy.control.rpc.decoding import Late
from proxy.control.rpc.member import Member
from proxy.core import limits
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Clock, Reactor
from proxy.http import grpc
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.grpc import Status
from proxy.http.head import UNKNOWN, RequestHead, ResponseHead
from proxy.http.headers import Field, field
from proxy.http.stream import ServerEnd

_CONTENT_TYPE: Final = field(b"content-type", grpc.CONTENT_TYPE)
_USER_AGENT: Final = field(b"user-agent", b"sponson")
_NOT_BEGUN: Final = frozenset({Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT, Reason.PEER_REFUSED})


class Calls(Protocol):
    """What a call uses of the channel that keeps it."""

    @property
    def authority(self) -> bytes: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def reactor(self) -> Reactor: ...

    def enqueue(self, call: Call) -> None:
        """Send the call as soon as an address can take it."""

    def forget(self, call: Call) -> None:
        """The call is over."""


class Call:
    """Made by `Channel.call` and `Channel.watch`."""

    __slots__ = ("method", "is_over", "on_began", "_channel", "_body", "_on_message", "_on_end", "_stream", "_late", "_last")  # fmt: skip

    def __init__(
        self,
        channel: Calls,
        method: Method[Any, Any],
        request: Message,
        on_message: Callable[[Any], None],
        on_end: Callable[[Status], None],
    ) -> None:
        self.method = method
        self.is_over = False
        self.on_began: Callable[[], None] | None = None
        """Called when the head of the answer has come."""
        self._channel = channel
        self._body = grpc.frame(request.SerializeToString())
        self._on_message = on_message
        self._on_end = on_end
        self._stream: CallStream | None = None
        self._late: Late[Any] | None = None
        """The messages that are decoded in shares, once there was one."""
        self._last: Status | None = None
        """How the call has ended, while messages that came before that are still decoded."""

    def cancel(self) -> None:
        """Give the call up; no callback is called afterwards. Idempotent."""
        if not self.is_over:
            self._stop()

    def end(self, status: Status) -> None:
        """End the call and give its status to the caller, behind the messages that came before."""
        if self._late is not None and not self._late.is_empty:
            self._last = self._last or status
        elif not self.is_over:
            self._stop()
            self._on_end(status)

    def _stop(self) -> None:
        self.is_over = True
        if self._late is not None:
            self._late.drop()
        self._channel.forget(self)
        stream = self._stream
        self._stream = None
        if stream is not None:
            stream.abandon()

    def send(self, member: Member, now: float) -> None:
        """Try the call on one of this member's connections. OSError if none can even be begun."""
        stream = self._stream = CallStream(self, member, now)
        stream.begin(self._channel.authority, self._body)

    def pause(self) -> None:
        """Take no more of the answer; what the windows let come comes."""
        if self._stream is not None:
            self._stream.pause()

    def resume(self) -> None:
        if self._stream is not None:
            self._stream.resume()

    # ---- from its stream

    def began(self) -> None:
        if self.on_began is not None:
            self.on_began()

    def deliver(self, data: bytes) -> None:
        late = self._late
        if len(data) > limits.DECODED_BYTES or (late is not None and not late.is_empty):
            if late is None:
                steps, kind = self._channel.reactor.steps, self.method.response
                late = self._late = Late(steps, kind, self._on_message, self._cannot_decode, self._all_decoded)
            late.add(data)
            if not late.is_empty:
                self.pause()
            return
        try:
            message = self.method.response.FromString(data)
        except DecodeError as error:
            self._cannot_decode(error)
            return
        self._on_message(message)

    def _cannot_decode(self, error: DecodeError) -> None:
        self.end(Status(grpc.INTERNAL, f"{self.method.response.DESCRIPTOR.full_name}: {error}"))

    def _all_decoded(self) -> None:
        if self._last is not None:
            self.end(self._last)
        else:
            self.resume()

    def try_again(self) -> None:
        self._stream = None
        self._channel.enqueue(self)

    def __repr__(self) -> str:
        state = "over" if self.is_over else "waiting" if self._stream is None else "sent"
        return f"Call {self.method.path} {state}"


class CallStream(ServerEnd):
    """ServerStream, Rescue and Observer of one Exchange."""

    __slots__ = ("_call", "_member", "_sent_at", "_exchange", "_deframer", "_counts", "_has_begun", "_http_status")

    def __init__(self, call: Call, member: Member, now: float) -> None:
        self._call: Call | None = call
        """None once the call is over or has gone on to another stream."""
        self._member = member
        self._sent_at = now
        self._deframer = grpc.Deframer()
        self._counts = False
        """Whether the member's load counts this stream."""
        self._has_begun = False
        """Whether the response was reported to the metrics."""
        self._http_status = 0
        self._exchange: Exchange | None = None

    def begin(self, authority: bytes, body: bytes) -> None:
        call = self._call
        assert call is not None
        head = RequestHead(
            b"POST", b"http", authority, call.method.path.encode(), [_CONTENT_TYPE, _USER_AGENT], UNKNOWN
        )
        head.takes_trailers = True
        exchange = self._exchange = Exchange(self, head, self._sent_at)
        exchange.rescue = self
        exchange.observers = (self,)
        self._member.sent()
        self._counts = True
        try:
            self._member.pool.open(Attempt(exchange, head))
        except OSError:
            self._release_member(BROKEN)
            raise
        exchange.request_data(body, True)

    def pause(self) -> None:
        if self._exchange is not None and not self._exchange.is_server_full:
            self._exchange.server_blocked()

    def resume(self) -> None:
        if self._exchange is not None and self._exchange.is_server_full:
            self._exchange.server_ready()

    def abandon(self) -> None:
        if self._call is not None and self._http_status:
            self._member.count_left(self._http_status)
        self._call = None
        exchange = self._exchange
        if exchange is not None and not exchange.response_ended:
            exchange.cancel(Reason.CANCELLED)

    def _end(self, status: Status) -> None:
        call = self._call
        self._call = None
        if call is not None:
            if self._http_status:
                self._count_began()
            self._member.count_end(self._http_status, status)
            call.end(status)

    def _count_began(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._member.count_began(self._http_status, self._sent_at)

    # ---- ServerStream: the answer

    def send_informational(self, head: ResponseHead) -> None:
        """Ignored, because 1xx has no meaning in gRPC."""

    def send_head(self, head: ResponseHead, end: bool) -> None:
        call = self._call
        if call is None:
            return
        self._http_status = head.status
        self._member.succeeded()
        status = grpc.status_of(head.fields)
        if head.status != 200 or not _is_grpc(head):
            text = f"not a gRPC response: HTTP status {head.status}"
            self._end(status or Status(grpc.code_of_http(head.status), text))
        elif end:
            self._end(status or Status(grpc.INTERNAL, "response without grpc-status"))
        else:
            call.began()

    def send_data(self, data: bytes, end: bool) -> None:
        try:
            for message in self._deframer.feed(data):
                call = self._call
                if call is None:
                    return
                call.deliver(message)
        except ProtocolError as error:
            self._end(Status(grpc.INTERNAL, str(error)))
        if end:
            self._end(Status(grpc.INTERNAL, "response ended without grpc-status"))

    def send_trailers(self, fields: list[Field]) -> None:
        status = grpc.status_of(fields) or Status(grpc.INTERNAL, "trailers without grpc-status")
        if status.code == grpc.OK and not self._deframer.is_between_messages:
            status = Status(grpc.INTERNAL, "response ended within a message")
        self._end(status)

    def reset(self, reason: Reason) -> None:
        self._end(self._status_of(reason))

    def pause_reading(self, cause: int) -> None:
        """The request is one message and sent whole: there is nothing to hold back."""

    def resume_reading(self, cause: int) -> None: ...

    def close_connection(self) -> None: ...

    # ---- Rescue: it failed before the answer began

    @property
    def informs(self) -> bool:
        return False

    def rescue(self, exchange: Exchange, reason: Reason) -> None:
        call = self._call
        if call is None:
            return
        if reason in _NOT_BEGUN:
            self._call = None
            self._release_member(BROKEN)
            self._member.failed()
            call.try_again()
        else:
            self._end(self._status_of(reason))

    def _status_of(self, reason: Reason) -> Status:
        exchange = self._exchange
        error_code = exchange.reset_code if exchange is not None else 0
        if reason is Reason.PEER_RESET and error_code:
            return Status(grpc.code_of_reset(error_code), f"stream reset with HTTP/2 error {error_code}")
        return Status(grpc.UNAVAILABLE, reason.value)

    # ---- Observer: when the call ends for the member's load

    def response_began(self, exchange: Exchange) -> None:
        if self._call is not None:
            self._count_began()
        self._release_member(ANSWERED)

    def exchange_ended(self, exchange: Exchange) -> None:
        self._release_member(GIVEN_UP if exchange.reason is Reason.CANCELLED else BROKEN)
        self._exchange = None  # it points back here; without the cycle both are freed at once

    def _release_member(self, outcome: int) -> None:
        if self._counts:
            self._counts = False
            self._member.answered(self._sent_at, outcome)


def _is_grpc(head: ResponseHead) -> bool:
    return any(one.name == b"content-type" and one.value.startswith(grpc.CONTENT_TYPE) for one in head.fields)
