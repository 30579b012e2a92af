"""Where a person should look when the outbound side has failed a request."""

from __future__ import annotations

from typing import Final

from proxy.core.failure.reason import Reason

_ENDPOINT: Final = (
    "does the endpoint's sidecar, or the app, run and listen there, and may this machine reach it? "
    "`sponson mesh get endpoints`, or `kubectl get endpointslices`, says who is expected; this sidecar's log says each failure"
)
_SERVICE: Final = "are there endpoints, and are they ready? `sponson mesh get endpoints`, or `kubectl get endpointslices`; this sidecar's log"

_OF_REASON: Final[dict[Reason, str]] = {
    Reason.CONNECT_FAILED: _ENDPOINT,
    Reason.CONNECT_TIMEOUT: _ENDPOINT,
    **dict.fromkeys(
        (Reason.RESPONSE_TIMEOUT, Reason.REQUEST_TIMEOUT, Reason.STREAM_TIMEOUT, Reason.IDLE_TIMEOUT),
        "is the app slow, or stopped? The route's timeout decides how long is waited",
    ),
    Reason.PEER_CLOSED: "the log of the endpoint: it took the connection and ended it before it answered",
    Reason.CONNECTION_RESET: "the log of the endpoint: it reset the connection before it answered",
    Reason.PROTOCOL_ERROR: "does the app speak HTTP on that port? One that does not is marked opaque",
    Reason.SHUTDOWN: "this sidecar, or its way to the endpoint, is shutting down: try again",
}

_OF_LABEL: Final = {
    "failfast": _SERVICE,
    # Said while the backend is in fail-fast, which the first of its requests were told of, and when too many wait.
    "loadshed": f"no endpoint was ready for the requests before this one, or more wait than may: {_SERVICE}",
    "identity required": "who is at the endpoint: it proves another identity than the request asks for",
    "unresolved": "is it a service of the mesh? Its whole name is NAME.NAMESPACE.svc.cluster.local; else the name servers of this machine",
    "not served": "the name's spelling and namespace (NAME.NAMESPACE.svc.cluster.local), and `sponson mesh get services`, or `kubectl get services -A`",
    "not http": "the port: is it the Service's own (often 80, whatever the app listens on), and is it among its `ports`? What is no HTTP is reached through CONNECT (curl --proxytunnel)",
    "unknown": "do the control plane and the name servers answer? This sidecar's log says when they went",
    "bad request": "how the client names its target: http://NAME/ through the proxy, https:// through CONNECT",
    "loop": "the target, or the endpoints of the service: neither may be a sidecar's own port",
    "forbidden": "the client's address: names outside the mesh are for clients on this machine",
}


def advice_for(label: str, reason: Reason, why: str) -> str:
    """The advice for the failure's label if it has one, else for the reason; may be empty. `why` is what is known of the cause."""
    if label == "loadshed" and why:
        return _SERVICE  # it is not that too many wait: no endpoint is there, or ready
    return _OF_LABEL.get(label) or _OF_REASON.get(reason, "")
