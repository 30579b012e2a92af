"""Where a person should look when the inbound side has failed a request; only meshed clients get it."""

from __future__ import annotations

from typing import Final

from proxy.core.failure.reason import Reason

_APP: Final = "does the app run, and does it listen on that address and port? The server's sidecar logs each failure"
_OF_STATUS: Final = {
    403: "which clients the port's Server, its routes and AuthorizationPolicies admit; the server's sidecar logs who was refused and by what",
    404: "the HTTPRoutes of the port's Server: none matches this request",
    429: "the HTTPLocalRateLimitPolicy of the port's Server",
    503: "more requests wait for the app than may: it is too slow",
    504: _APP,
}
_OF_REASON: Final[dict[Reason, str]] = {
    Reason.CONNECT_FAILED: _APP,
    Reason.CONNECT_TIMEOUT: _APP,
    Reason.PEER_CLOSED: "the app's log: it took the connection and ended it before it answered",
    Reason.CONNECTION_RESET: "the app's log: it reset the connection before it answered",
    Reason.PROTOCOL_ERROR: "does the app speak HTTP on that port? One that does not is marked opaque",
}


def advice_for(status: int, reason: Reason) -> str:
    return _OF_REASON.get(reason) or _OF_STATUS.get(status, "the log of the server's sidecar")
