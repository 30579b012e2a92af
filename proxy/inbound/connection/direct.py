"""Direct: connections that a peer's proxy makes to our own port, naming the app's port in a transport header.

Only mutual TLS with the header's ALPN protocol is served; the address is
the original destination's, the port is the header's, and that port's policy
applies (docs/linkerd/inbound.md, section 4; docs/linkerd/identity-and-tls.md, section 8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.address.addr import Addr
from proxy.core.codec import CLOSED, Codec, Wire
from proxy.core.connection.dial import ALPN
from proxy.core.connection.drain import Drain
from proxy.core.failure.reason import Reason
from proxy.http.exchange import Stage
from proxy.inbound.connection.arrival import Arrival, Early
from proxy.inbound.connection.opaque import forward
from proxy.inbound.gateway.server import Gateway
from proxy.inbound.http.requests import serve_http1, serve_http2
from proxy.inbound.runtime import IO, UNEXPECTED, Runtime
from proxy.transport.detection.first_bytes import FirstBytes, Opened, Unreadable
from proxy.transport.detection.header import HEADER, TransportHeader


class DirectServer:
    """The Service of the inbound port itself."""

    __slots__ = ("tls_timeout_s", "is_direct", "counts_routes", "drain", "_runtime", "_app", "_gateway")

    def __init__(self, runtime: Runtime, app: Callable[[Arrival], Stage], gateway: Gateway) -> None:
        self.tls_timeout_s: float = runtime.config.inbound_detect_timeout_s
        self.is_direct: bool = True
        self.counts_routes: bool = True
        self.drain: Drain = runtime.drain
        self._runtime: Final = runtime
        self._app: Final = app
        self._gateway: Final = gateway

    def skips_tls(self, arrival: Arrival) -> bool:
        return False

    def early(self, arrival: Arrival, on_spoke: Callable[[], None]) -> Early | None:
        return None

    def serve(self, arrival: Arrival, wire: Wire) -> Codec:
        if not arrival.tls.is_meshed:
            return _refuse(arrival, wire, "direct connections must be mutually authenticated")
        if arrival.alpn != ALPN:
            return _refuse(arrival, wire, "direct connections require transport header negotiation")

        def on_read(found: tuple[TransportHeader, bytes] | Unreadable, first: bytes) -> Opened | Reason:
            if isinstance(found, Unreadable):
                arrival.fail(IO, found.text)
                arrival.fault("transport_header")
                return found.reason
            header, rest = found
            codec = self._route(arrival, wire, header)
            return Reason.CANCELLED if codec is None else Opened(codec, rest)

        return FirstBytes(wire, self._runtime.reactor.wheel, HEADER, self.tls_timeout_s, on_read)

    def _route(self, arrival: Arrival, wire: Wire, header: TransportHeader) -> Codec | None:
        """The codec for the port that the header names; None if there is no such port, which was counted."""
        self._count(arrival, header)
        if header.name:
            return self._gateway.serve(arrival, wire, header)
        arrival.settle(Addr(arrival.original.ip, header.port))
        arrival.measure()
        if header.session_protocol == "http/1":
            return serve_http1(arrival, wire, self._app(arrival))
        if header.session_protocol == "http/2":
            return serve_http2(arrival, wire, self._app(arrival))
        return forward(arrival, wire)

    def _count(self, arrival: Arrival, header: TransportHeader) -> None:
        labels = (
            ("session_protocol", header.session_protocol),
            ("target_port", str(header.port)),
            ("target_name", header.name),
            ("client_id", arrival.tls.client_id),
        )
        self._runtime.registry.counter("inbound_tcp_transport_header_connections_total", labels).add()


def _refuse(arrival: Arrival, wire: Wire, text: str) -> Codec:
    arrival.fail(UNEXPECTED, text)
    arrival.fault("not_direct")
    wire.abort(Reason.CANCELLED)
    return CLOSED
