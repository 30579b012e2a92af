"""CONNECT to this proxy: from the request to the refusal, or to the 200 and the bytes of the tunnel (docs/design.md,
section 6).

CONNECT is a request like any other on its connection: it waits behind pipelined ones, and after a refusal the next
one may follow. There is no answer until the destination is known. After the 200 the bytes are treated like those of
a redirected connection: detected, routed, balanced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from proxy.core.address.addr import Addr
from proxy.core.codec import Connection, hand_over
from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2, TUNNEL, RequestHead, ResponseHead
from proxy.http.headers import Field
from proxy.http.stream import ClientEnd
from proxy.outbound.discovery.discover import Destination
from proxy.outbound.discovery.unknown import no_way_to, not_served
from proxy.outbound.explicit.stream_wire import StreamWire
from proxy.outbound.http.rescue import Failure
from proxy.outbound.protocol import Protocols
from proxy.policy.client import ClientPolicy

_log: Final = logging.getLogger(__name__)


class RefusedError(Exception):
    """The client may not use this destination, or it cannot be found; the text says which."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure: Final = failure


class Tunnels:
    """The CONNECTs of one explicit connection."""

    __slots__ = ("_protocols", "_connection", "_streams")

    def __init__(self, protocols: Protocols, connection: Connection) -> None:
        self._protocols: Final = protocols
        self._connection: Final = connection
        self._streams: Final[dict[StreamWire, None]] = {}
        """The tunnels that are streams of an HTTP/2 connection."""

    def close(self) -> None:
        """Shutdown: what runs inside the tunnels finishes, as it would on a connection of its own."""
        for stream in list(self._streams):
            stream.codec.close()

    def refuse(self, exchange: Exchange, failure: Failure, text: str) -> None:
        self._protocols.runtime.registry.faults("outbound").count_as("connect_refused")
        _log.info("CONNECT refused: %s", text)
        self._protocols.rescue.fail(exchange, failure, text)

    def open(self, exchange: Exchange, destination: Destination) -> None:
        """Open the tunnel, now that the destination is known."""
        if not isinstance(destination.effective.value, ClientPolicy):
            self.refuse(exchange, no_way_to(destination), not_served(destination))
            return
        # In a later turn, because the codec cannot give its connection away before it has read its CONNECT to the end.
        self._protocols.runtime.reactor.steps.add(_Open(exchange, destination, self._take))

    def _take(self, exchange: Exchange, destination: Destination) -> None:
        if exchange.request.version == HTTP_2:
            self._take_stream(exchange, destination)
        else:
            self._take_connection(exchange, destination)

    def _take_connection(self, exchange: Exchange, destination: Destination) -> None:
        """Over HTTP/1 the whole connection becomes the tunnel; its codec's `lost` is called."""
        connection = self._connection
        http1 = connection.codec
        early = _Early()
        exchange.attach(early)
        exchange.response_head(_established(), False)
        http1.lost(Reason.COMPLETE)
        codec = self._protocols.codec(connection, destination, _label(destination))
        hand_over(connection, codec, b"".join(early.data), early.has_eof)

    def _take_stream(self, exchange: Exchange, destination: Destination) -> None:
        has_eof = exchange.request_ended
        stream = StreamWire(self._protocols.runtime.reactor, exchange, self._forget)
        self._streams[stream] = None
        stream.hand_over(self._protocols.codec(stream, destination, _label(destination)))
        stream.attach()
        exchange.response_head(_established(), False)
        if has_eof:
            exchange.request_data(b"", True)

    def _forget(self, stream: StreamWire) -> None:
        self._streams.pop(stream, None)


class _Open:
    """Opens the tunnel when the step queue calls it."""

    __slots__ = ("_exchange", "_destination", "_then")

    def __init__(
        self, exchange: Exchange, destination: Destination, then: Callable[[Exchange, Destination], None]
    ) -> None:
        self._exchange = exchange
        self._destination = destination
        self._then = then

    def step(self) -> None:
        if self._exchange.reason is None:
            self._then(self._exchange, self._destination)


class _Early(ClientEnd):
    """The ClientStream that collects bytes that came after the CONNECT and were read together with it."""

    __slots__ = ("data", "has_eof")

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.has_eof = False

    def end_sending(self) -> bool:
        return True

    def send_head(self, head: RequestHead, end: bool) -> None: ...

    def send_data(self, data: bytes, end: bool) -> None:
        self.data.append(data)
        self.has_eof = self.has_eof or end

    def send_trailers(self, fields: list[Field]) -> None: ...

    def reset(self, reason: Reason) -> None: ...

    def pause_reading(self, cause: int) -> None: ...

    def resume_reading(self, cause: int) -> None: ...


def _established() -> ResponseHead:
    head = ResponseHead(200, [], TUNNEL)
    head.phrase = b"Connection established"
    return head


def _label(destination: Destination) -> Addr:
    """The address that metrics name as the target."""
    target = destination.target
    return target if isinstance(target, Addr) else Addr("0.0.0.0", int(target.rpartition(":")[2]))
