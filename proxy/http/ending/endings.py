"""The one table of endings: for each Reason, who is at fault, the answer over HTTP and gRPC, the HTTP/2 error code, and the
label in the metrics.

`ENDINGS` has a line for every Reason. A role that answers some of them
differently overrides these by name, in a table of its own (`overridden`).
Failures that stages decide (no route, failfast) have the same shape and are
defined below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from proxy.core.failure.reason import Reason
from proxy.http import grpc
from proxy.http.h2.frames.codes import (
    CANCEL,
    COMPRESSION_ERROR,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    INTERNAL_ERROR,
    NO_ERROR,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    STREAM_CLOSED,
)


class Failure(NamedTuple):
    """The answer to a request that no endpoint answered."""

    status: int
    grpc_code: int
    closes: bool = False
    """The client's connection goes down after the answer."""
    label: str = ""
    """The `error` label in outbound_http_errors_total and inbound_http_errors_total; empty if it is not counted there."""
    text: str = ""
    """The text of the answer, if it differs from the reason's own."""
    word: str = ""
    """The `error` label of route metrics; empty if the status is counted like that of an endpoint's answer."""


# Who is at fault.
NONE: Final = "none"
CLIENT: Final = "client"
ENDPOINT: Final = "endpoint"
PROXY: Final = "proxy"


class Ending(NamedTuple):
    fault: str
    """CLIENT, ENDPOINT, PROXY, or NONE; PEER_… reasons are judged as those of a connection to an endpoint."""
    rst_code: int
    """The HTTP/2 error code of a stream or a connection that we end for it."""
    failure: Failure
    """The answer to a client whose request ends before its response began."""


_BAD_GATEWAY: Final = Failure(502, grpc.UNAVAILABLE)
_BAD_REQUEST: Final = Failure(400, grpc.INVALID_ARGUMENT)
_TOO_LARGE: Final = Failure(431, grpc.RESOURCE_EXHAUSTED)
_TOO_LONG: Final = Failure(502, grpc.RESOURCE_EXHAUSTED)
"""The response is over our limits, which is not the client's fault."""
_TIMED_OUT: Final = Failure(504, grpc.DEADLINE_EXCEEDED)

ENDINGS: Final[Mapping[Reason, Ending]] = {
    Reason.COMPLETE: Ending(NONE, NO_ERROR, _BAD_GATEWAY),
    Reason.EARLY_RESPONSE: Ending(NONE, NO_ERROR, _BAD_GATEWAY),
    Reason.PEER_CLOSED: Ending(ENDPOINT, CANCEL, _BAD_GATEWAY),
    Reason.CONNECTION_RESET: Ending(ENDPOINT, CANCEL, _BAD_GATEWAY),
    Reason.PEER_RESET: Ending(ENDPOINT, CANCEL, _BAD_GATEWAY),
    Reason.PEER_REFUSED: Ending(ENDPOINT, REFUSED_STREAM, Failure(503, grpc.UNAVAILABLE)),
    Reason.CONNECT_FAILED: Ending(ENDPOINT, INTERNAL_ERROR, _BAD_GATEWAY),
    Reason.CONNECT_TIMEOUT: Ending(ENDPOINT, INTERNAL_ERROR, _TIMED_OUT),
    Reason.RESPONSE_TIMEOUT: Ending(ENDPOINT, CANCEL, _TIMED_OUT),
    Reason.REQUEST_TIMEOUT: Ending(ENDPOINT, CANCEL, _TIMED_OUT),
    Reason.STREAM_TIMEOUT: Ending(ENDPOINT, CANCEL, _TIMED_OUT),
    Reason.IDLE_TIMEOUT: Ending(ENDPOINT, CANCEL, _TIMED_OUT),
    Reason.PROTOCOL_ERROR: Ending(ENDPOINT, PROTOCOL_ERROR, _BAD_GATEWAY),
    Reason.FLOW_CONTROL: Ending(ENDPOINT, FLOW_CONTROL_ERROR, _BAD_GATEWAY),
    Reason.FRAME_SIZE: Ending(ENDPOINT, FRAME_SIZE_ERROR, _BAD_GATEWAY),
    Reason.COMPRESSION: Ending(ENDPOINT, COMPRESSION_ERROR, _BAD_GATEWAY),
    Reason.STREAM_CLOSED: Ending(ENDPOINT, STREAM_CLOSED, _BAD_GATEWAY),
    Reason.BAD_REQUEST: Ending(CLIENT, CANCEL, _BAD_REQUEST),
    Reason.BAD_AUTHORITY: Ending(CLIENT, PROTOCOL_ERROR, _BAD_REQUEST),
    Reason.BAD_HEAD: Ending(CLIENT, PROTOCOL_ERROR, _BAD_REQUEST),
    Reason.RESET_FLOOD: Ending(CLIENT, ENHANCE_YOUR_CALM, _BAD_GATEWAY),
    Reason.CONTROL_FLOOD: Ending(CLIENT, ENHANCE_YOUR_CALM, _BAD_GATEWAY),
    Reason.HEADER_FLOOD: Ending(CLIENT, ENHANCE_YOUR_CALM, _BAD_GATEWAY),
    Reason.SLOW_OPENING: Ending(CLIENT, CANCEL, _BAD_GATEWAY),
    Reason.PEER_REVOKED: Ending(CLIENT, CANCEL, _BAD_GATEWAY),
    Reason.PEER_SILENT: Ending(ENDPOINT, CANCEL, _BAD_GATEWAY),
    Reason.UNSUPPORTED: Ending(ENDPOINT, CANCEL, _BAD_GATEWAY),
    Reason.STALLED: Ending(CLIENT, CANCEL, _BAD_GATEWAY),
    Reason.OVER_LIMIT: Ending(CLIENT, ENHANCE_YOUR_CALM, _TOO_LARGE),
    Reason.RESPONSE_HEAD_LIMIT: Ending(ENDPOINT, ENHANCE_YOUR_CALM, _TOO_LONG),
    Reason.TRAILERS_LIMIT: Ending(ENDPOINT, ENHANCE_YOUR_CALM, _TOO_LONG),
    Reason.PEER_TRAILERS_LIMIT: Ending(CLIENT, ENHANCE_YOUR_CALM, _TOO_LARGE),
    Reason.SHUTDOWN: Ending(PROXY, REFUSED_STREAM, Failure(503, grpc.UNAVAILABLE)),
    Reason.CANCELLED: Ending(CLIENT, CANCEL, _BAD_GATEWAY),
    Reason.INTERNAL: Ending(PROXY, INTERNAL_ERROR, Failure(500, grpc.INTERNAL)),
}


def overridden(own: Mapping[Reason, Failure]) -> dict[Reason, Failure]:
    """The failure of every Reason for a role that says `own` of some; each with the text of its answer."""
    made: dict[Reason, Failure] = {}
    for reason, ending in ENDINGS.items():
        failure = own.get(reason, ending.failure)
        made[reason] = failure if failure.text else failure._replace(text=reason.value)
    return made


def code_of(reason: Reason) -> int:
    """The HTTP/2 error code to send for this reason."""
    return ENDINGS[reason].rst_code


# What stages decide.
FAILFAST: Final = Failure(504, grpc.DEADLINE_EXCEEDED, True, "failfast", word="FAIL_FAST")
LOAD_SHED: Final = Failure(503, grpc.UNAVAILABLE, True, "loadshed", word="LOAD_SHED")
UNEXPECTED: Final = Failure(500, grpc.INTERNAL, True, "unexpected", word="UNKNOWN")
NO_ROUTE: Final = Failure(404, grpc.NOT_FOUND)
