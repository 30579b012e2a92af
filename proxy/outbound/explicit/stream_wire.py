"""StreamWire: one HTTP/2 stream as a Wire, once CONNECT has made a tunnel of it (RFC 9113, section 8.5).

What runs inside of the tunnel is a codec like any other and does not know that its wire is a stream: half-closes are
END_STREAM, a destination that fails is RST_STREAM with CONNECT_ERROR, and the stream's window is what holds a sender
back, both ways.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core import limits
from proxy.core.codec import CLOSED, Codec, Wire
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.step_queue import Guarded, Steps
from proxy.core.loop.timers import Timer
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.http.headers import Field
from proxy.http.stream import ClientEnd

_PEACEFUL: Final = (Reason.COMPLETE, Reason.SHUTDOWN, Reason.PEER_CLOSED)
"""Reasons for which a plain connection would end by FIN."""
_CONNECT_ERROR: Final = 10


class StreamWire(Wire):
    __slots__ = (
        "codec", "_exchange", "_reactor", "_on_lost", "_output", "_missed", "_reason",
        "_is_marked", "_is_paused", "_is_ending", "_has_ended", "_has_eof", "_is_lost", "_linger",
    )  # fmt: skip

    def __init__(self, reactor: Reactor, exchange: Exchange, on_lost: Callable[[StreamWire], None]) -> None:
        """`on_lost` is called once, after the codec's `lost`."""
        self.codec: Codec = CLOSED
        self._exchange = exchange
        self._reactor = reactor
        self._on_lost: Callable[[StreamWire], None] | None = on_lost
        self._output: list[bytes] = []
        self._missed: list[bytes] = []
        """What came while reading was paused, at most the stream's window. Empty bytes stand for the end."""
        self._reason: Reason | None = None
        """The reason for which it was aborted."""
        self._is_marked = False
        self._is_paused = False
        self._is_ending = False
        self._has_ended = False
        self._has_eof = False
        self._is_lost = False
        self._linger: Timer | None = None

    def attach(self) -> None:
        """Give what the client sends to the codec, from now on."""
        self._exchange.attach(_Inlet(self))

    # ---- Wire

    def write(self, data: bytes) -> None:
        self._output.append(data)
        self._mark()

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._exchange.client_blocked()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._reactor.steps.add(self)

    def end(self) -> None:
        self._is_ending = True
        self._mark()

    def abort(self, reason: Reason) -> None:
        if self._reason is not None or self._is_lost:
            return
        if reason in _PEACEFUL:
            self._is_ending = True
            self._linger = self._reactor.wheel.after(limits.LINGER_S, self._end_by_force)
        self.flush()  # a GOAWAY, a 400 should still leave
        self._reason = reason
        self._reactor.steps.add(self)

    def is_stale(self) -> bool:
        return self._is_lost or self._reason is not None or bool(self._missed)

    def schedule(self, target: Steps) -> None:
        self._reactor.steps.add(Guarded(target, self.abort))

    def hand_over(self, codec: Codec) -> None:
        if not self._is_lost:
            self.codec = codec

    # ---- the loop

    def flush(self) -> None:
        """Called by the flusher: send what was written as one piece."""
        self._is_marked = False
        exchange = self._exchange
        if exchange.reason is not None or self._reason is not None or self._has_ended:
            self._output.clear()
            return
        output, self._output = self._output, []
        if self._is_ending:
            self._has_ended = True
            exchange.response_data(b"".join(output), True)
            self._lose_if_over()
        elif output:
            exchange.response_data(b"".join(output), False)

    def step(self) -> None:
        """The step queue calls this: reading goes on, or what was aborted is over."""
        reason = self._reason
        if reason is not None:
            self.lose(reason)
            if self._linger is None:
                self._end_by_force()
            return
        missed, self._missed = self._missed, []
        for index, data in enumerate(missed):
            if self._is_paused or self._reason is not None:
                self._missed = missed[index:] + self._missed
                return
            self._deliver(data)
        if not self._is_paused and not self._is_lost:
            self._exchange.client_ready()

    def _end_by_force(self) -> None:
        exchange = self._exchange
        if exchange.reason is not None:
            return
        if self._reason in _PEACEFUL:
            exchange.cancel(Reason.COMPLETE)
        elif self._reason is Reason.INTERNAL:
            exchange.cancel(Reason.INTERNAL)
        else:
            exchange.reset_code = _CONNECT_ERROR
            exchange.cancel(Reason.PEER_RESET)

    def _mark(self) -> None:
        if not self._is_marked and not self._is_lost:
            self._is_marked = True
            self._reactor.flusher.mark(self)

    # ---- what the client sends

    def received(self, data: bytes, end: bool) -> None:
        if self._is_lost:
            # The client has its END_STREAM; what it still sends is dropped, until it ends too.
            if end and self._linger is not None:
                self._linger.cancel()
            return
        if self._is_paused or self._missed:
            if data:
                self._missed.append(data)
            if end:
                self._missed.append(b"")
            return
        if data:
            self._deliver(data)
        if end:
            self._deliver(b"")

    def said_writable(self, is_writable: bool) -> None:
        self._tell(lambda codec: codec.writable(is_writable))

    def was_reset(self, reason: Reason) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self.lose(reason)

    def lose(self, reason: Reason) -> None:
        """The stream is gone."""
        if self._is_lost:
            return
        self._is_lost = True
        codec, on_lost = self.codec, self._on_lost
        # Let go of what points back here, so that a tunnel that is over is freed at once.
        self.codec = CLOSED
        self._on_lost = None
        self._missed.clear()
        if self._is_paused:
            self._exchange.client_ready()
        try:
            codec.lost(reason)
        except Exception:
            report_fault()
        if on_lost is not None:
            on_lost(self)

    def _deliver(self, data: bytes) -> None:
        if data:
            self._tell(lambda codec: codec.feed(data))
        else:
            self._has_eof = True
            self._tell(lambda codec: codec.eof())
            self._lose_if_over()

    def _lose_if_over(self) -> None:
        """End the wire if both directions have ended, which the exchange does not report."""
        if self._has_eof and self._has_ended:
            self.lose(Reason.COMPLETE)

    def _tell(self, what: Callable[[Codec], None]) -> None:
        if self._reason is not None:
            return
        try:
            what(self.codec)
        except Exception:
            report_fault()
            self.abort(Reason.INTERNAL)


class _Inlet(ClientEnd):
    """The ClientStream of the CONNECT, which passes on to the wire what comes from the exchange."""

    __slots__ = ("_wire",)

    def __init__(self, wire: StreamWire) -> None:
        self._wire = wire

    def end_sending(self) -> bool:
        return True

    def send_head(self, head: RequestHead, end: bool) -> None:
        """The CONNECT itself, which has been understood."""

    def send_data(self, data: bytes, end: bool) -> None:
        self._wire.received(data, end)

    def send_trailers(self, fields: list[Field]) -> None:
        self._wire.received(b"", True)

    def reset(self, reason: Reason) -> None:
        self._wire.was_reset(reason)

    def pause_reading(self, cause: int) -> None:
        self._wire.said_writable(False)

    def resume_reading(self, cause: int) -> None:
        self._wire.said_writable(True)
