"""Error codes of HTTP/2 (RFC 9113 section 7). http/ending/endings.py has the code that we send for each Reason.

A code that an endpoint sent travels beside its Reason, in
`Exchange.reset_code`, and reaches an HTTP/2 client as it came.
"""

from __future__ import annotations

from typing import Final

from proxy.core.failure.reason import Reason

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
INTERNAL_ERROR: Final = 2
FLOW_CONTROL_ERROR: Final = 3
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11

_TEXTS: Final = (
    "not a result of an error",
    "unspecific protocol error detected",
    "unexpected internal error encountered",
    "flow-control protocol violated",
    "settings ACK not received in timely manner",
    "received frame when stream half-closed",
    "frame with invalid size",
    "refused stream before processing any application logic",
    "stream no longer needed",
    "unable to maintain the header compression context",
    "connection established in response to a CONNECT request was reset or abnormally closed",
    "detected excessive load generating behavior",
    "security properties do not meet minimum requirements",
    "endpoint requires HTTP/1.1",
)


def reason_of(code: int) -> Reason:
    """The Reason for a stream that the peer reset with this code."""
    return Reason.PEER_REFUSED if code == REFUSED_STREAM else Reason.PEER_RESET


def text_of(code: int) -> str:
    """What Linkerd's `l5d-proxy-error` says of a code (recordings: outbound-to-peer, reset-*)."""
    return _TEXTS[code] if code < len(_TEXTS) else f"unknown reason {code}"
