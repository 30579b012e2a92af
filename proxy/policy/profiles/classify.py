"""Classify: whether an exchange was a success for response_total and route_response_total (docs/linkerd/service-profiles.md, section 4).

A pure function, called once, when the exchange has ended.
"""

from __future__ import annotations

from typing import Final

from proxy.core.failure.reason import Reason
from proxy.http import grpc
from proxy.http.exchange import Exchange
from proxy.http.head import ResponseHead
from proxy.http.headers import Field
from proxy.metrics.scope import Ended
from proxy.policy.profiles.profile import ResponseClasses

_BROKEN: Final = frozenset(
    (
        Reason.PEER_RESET,
        Reason.PROTOCOL_ERROR,
        Reason.FLOW_CONTROL,
        Reason.OVER_LIMIT,
        Reason.RESPONSE_HEAD_LIMIT,
        Reason.TRAILERS_LIMIT,
        Reason.INTERNAL,
        Reason.PEER_CLOSED,
        Reason.CONNECTION_RESET,
        Reason.REQUEST_TIMEOUT,
        Reason.STREAM_TIMEOUT,
        Reason.IDLE_TIMEOUT,
    )
)
"""Why a response that had begun did not end, for reasons other than that its client left."""

_RESETS: Final = (
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
)  # fmt: skip
"""The error labels of resets, by HTTP/2 error code."""


class ClassifyingRoute:
    """A Place that decides itself which statuses are successes and failures; it is the `exchange.route` of its
    requests.
    """

    __slots__ = ("context", "classes", "has_classes")

    def __init__(self, context: str, classes: ResponseClasses, has_classes: bool) -> None:
        self.context: Final = context
        self.classes: Final = classes
        self.has_classes: Final = has_classes


def classify(exchange: Exchange) -> Ended | None:
    """The class of an exchange that has ended; None if its client had left before the response was complete."""
    response = exchange.response
    reason = exchange.reason
    if response is None:
        # A client resets streams too, and that says nothing about the endpoint.
        is_reset = exchange.is_broken and (reason is Reason.PEER_RESET or reason is Reason.PEER_REFUSED)
        is_reset = is_reset or reason is Reason.RESPONSE_TIMEOUT
        return Ended(0, False, "", _error(exchange)) if is_reset else None
    status = response.status
    if exchange.is_broken and reason in _BROKEN and not exchange.response_ended:
        return Ended(status, False, "", _error(exchange))
    route = exchange.route
    if isinstance(route, ClassifyingRoute) and route.has_classes:
        return classify_by(route.classes, response, exchange.trailers)
    if exchange.request.method == b"POST":  # gRPC knows no other
        for one in exchange.request.fields:
            if one.name == b"content-type" and one.value.startswith(grpc.CONTENT_TYPE):
                return _classify_grpc(response, exchange.trailers)
    return _PLAIN.get(status) or _plain(status)


def classify_by(classes: ResponseClasses, response: ResponseHead, trailers: list[Field] | None) -> Ended:
    """The route's classes decide for the statuses that they name; for others the gRPC status decides, in the head or
    in the trailers.
    """
    status = response.status
    if status in classes.failures:
        return Ended(status, False, "", "")
    if status not in classes.successes:
        code = _code_of(response, trailers)
        if code >= 0:
            return Ended(status, code not in grpc.FAILURES, str(code), "")
        return _PLAIN.get(status) or _plain(status)
    return Ended(status, True, "", "")


_PLAIN: Final[dict[int, Ended]] = {}


def _plain(status: int) -> Ended:
    made = _PLAIN[status] = Ended(status, status < 500, "", "")
    return made


def _classify_grpc(response: ResponseHead, trailers: list[Field] | None) -> Ended:
    code = _code_of(response, trailers)
    if code < 0:
        return Ended(response.status, True, str(grpc.UNKNOWN), "")
    return Ended(response.status, code not in grpc.FAILURES, str(code), "")


def _code_of(response: ResponseHead, trailers: list[Field] | None) -> int:
    """The gRPC status of the head, else of the trailers; -1 if neither has one that is a number."""
    code = grpc.code_in(response.fields)
    return grpc.code_in(trailers) if code < 0 and trailers is not None else code


def _error(exchange: Exchange) -> str:
    if exchange.reason is Reason.RESPONSE_TIMEOUT:
        return "timeout"
    code = exchange.reset_code
    if exchange.reason in (Reason.PEER_RESET, Reason.PEER_REFUSED) and code < len(_RESETS):
        return f"h2({_RESETS[code]})"
    return "unclassified"
