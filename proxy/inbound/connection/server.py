"""Server: a connection to one of the app's ports, by the protocol that its policy says (docs/linkerd/inbound.md, section 2).

The policy's protocol is read once, when the connection begins; authorization
uses the policy of the moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.codec import Codec, Wire
from proxy.core.connection.drain import Drain
from proxy.core.log import logger
from proxy.http.exchange import Stage
from proxy.inbound import labels
from proxy.inbound.connection.arrival import Arrival, Early
from proxy.inbound.connection.detect import Detecting
from proxy.inbound.connection.early import EarlyApp
from proxy.inbound.connection.opaque import forward
from proxy.inbound.http.requests import serve_http1, serve_http2
from proxy.inbound.runtime import IO, Runtime
from proxy.policy.server import GRPC, HTTP_1, HTTP_2, OPAQUE, TLS, ServerPolicy
from proxy.transport.detection.detect import Detection

_log: Final = logger(__name__)


class AppServer:
    """The Service of every port but the proxy's own."""

    __slots__ = ("tls_timeout_s", "is_direct", "counts_routes", "drain", "_runtime", "_app")

    def __init__(self, runtime: Runtime, app: Callable[[Arrival], Stage]) -> None:
        """`app` gives the stage that takes permitted requests to the app's port of a connection."""
        self.tls_timeout_s: float = runtime.config.inbound_detect_timeout_s
        self.is_direct: bool = False
        self.counts_routes: bool = True
        self.drain: Drain = runtime.drain
        self._runtime: Final = runtime
        self._app: Final = app

    def skips_tls(self, arrival: Arrival) -> bool:
        return arrival.port.policy.protocol == OPAQUE

    def serve(self, arrival: Arrival, wire: Wire) -> Codec:
        policy = arrival.port.policy
        protocol = policy.protocol
        if protocol in (OPAQUE, TLS):
            return forward(arrival, wire)
        if protocol in (HTTP_2, GRPC):
            return serve_http2(arrival, wire, self._app(arrival))
        if protocol == HTTP_1 and arrival.tls.state == labels.NONE:
            return serve_http1(arrival, wire, self._app(arrival))
        # A peer's proxy may carry HTTP/1 in HTTP/2 whichever protocol the policy names.
        timeout_s = self._runtime.config.inbound_detect_timeout_s if protocol == HTTP_1 else policy.detect_timeout_s
        return Detecting(arrival, wire, timeout_s, self._detected).first_bytes

    def early(self, arrival: Arrival, on_spoke: Callable[[], None]) -> Early | None:
        app = EarlyApp(arrival, self._runtime.early, on_spoke)
        return app if app.begin() else None

    def _detected(self, arrival: Arrival, wire: Wire, detection: Detection) -> Codec | None:
        if detection is Detection.ERROR:
            arrival.fail(IO, "socket closed before protocol detection")
            return None
        if detection is Detection.HTTP1:
            return serve_http1(arrival, wire, self._app(arrival))
        if detection is Detection.HTTP2:
            return serve_http2(arrival, wire, self._app(arrival))
        if detection is Detection.READ_TIMEOUT:
            return self._undetected(arrival, wire, arrival.port.policy)
        return forward(arrival, wire)

    def _undetected(self, arrival: Arrival, wire: Wire, policy: ServerPolicy) -> Codec:
        """The client has said nothing in time: the current policy decides."""
        if policy.protocol == HTTP_1:
            _log.info("Handling connection as HTTP/1 due to policy")
            return serve_http1(arrival, wire, self._app(arrival))
        if policy.protocol in (HTTP_2, GRPC):
            _log.info("Handling connection as HTTP/2 due to policy")
            return serve_http2(arrival, wire, self._app(arrival))
        _log.info("Handling connection as opaque due to policy")
        return forward(arrival, wire)
