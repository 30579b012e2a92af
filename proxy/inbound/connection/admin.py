"""Admin: the admin port's connections, which are inbound ones of their own kind (docs/linkerd/admin-tap-tracing-shutdown.md, section 1).

TLS and HTTP have a second each; what is not HTTP is closed; a request
meets the policy of the admin port before it meets a page.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from proxy.core.address.addr import Addr, addr
from proxy.core.codec import Codec, Wire
from proxy.core.connection.drain import Drain
from proxy.http.exchange import Stage
from proxy.inbound import labels
from proxy.inbound.connection.arrival import Arrival, Early
from proxy.inbound.connection.detect import Detecting
from proxy.inbound.http.requests import serve_http1, serve_http2
from proxy.inbound.runtime import IO, UNEXPECTED, Runtime
from proxy.transport.detection.detect import Detection

_DETECT_TIMEOUT_S: Final = 1.0


class AdminServer:
    """The Service of the admin port."""

    __slots__ = ("tls_timeout_s", "is_direct", "counts_routes", "drain", "_runtime", "_addr", "_pages")

    def __init__(self, runtime: Runtime, at: Addr, pages: Callable[[bool], Stage], drain: Drain) -> None:
        """`pages` gives the stage that answers a client; its argument says whether the client is local. The admin port has a
        drain of its own, because it answers until the traffic of both sides has ended."""
        self.tls_timeout_s: float = _DETECT_TIMEOUT_S
        self.is_direct: bool = False
        self.counts_routes: bool = False
        self.drain: Drain = drain
        self._runtime: Final = runtime
        self._addr: Final = at
        self._pages: Final = pages

    def accept(self, sock: socket.socket, peer: Addr) -> None:
        arrival = Arrival(self._runtime, self, peer, self._addr)
        own = addr(*sock.getsockname()[:2])
        arrival.is_local = self._runtime.here.is_local_client(
            peer, own
        )  # now, because a socket of ours may close later
        arrival.settle(self._addr)
        arrival.begin(sock)

    def skips_tls(self, arrival: Arrival) -> bool:
        return False

    def early(self, arrival: Arrival, on_spoke: Callable[[], None]) -> Early | None:
        return None

    def serve(self, arrival: Arrival, wire: Wire) -> Codec:
        return Detecting(arrival, wire, _DETECT_TIMEOUT_S, self._detected).first_bytes

    def _detected(self, arrival: Arrival, wire: Wire, detection: Detection) -> Codec | None:
        tls = arrival.tls
        if detection is Detection.ERROR:
            arrival.fail(IO, "socket closed before protocol detection")
            return None
        if detection is Detection.NOT_HTTP:
            is_foreign = tls.state == labels.PASSED_THROUGH
            what = f"Unexpected TLS connection to {tls.sni}" if is_foreign else "non-HTTP connection"
            arrival.fail(UNEXPECTED, f"{what} from {arrival.peer}")
            return None
        speaks_http2 = detection is Detection.HTTP2 or (detection is Detection.READ_TIMEOUT and tls.is_established)
        serve = serve_http2 if speaks_http2 else serve_http1
        return serve(arrival, wire, self._pages(arrival.is_local))
