"""Rescue: answers for requests that failed (docs/linkerd/outbound.md, section 10; recorded texts in tests/data/outbound-errors.json).

One table gives the answer to each failure over HTTP, over gRPC, and for the
client's connection. The text is the chain of names down to what failed,
which `context_of` gives.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from proxy.core.failure.reason import Reason
from proxy.core.failure.troubles import Troubles
from proxy.http import grpc, orig_proto
from proxy.http.ending import endings, replies
from proxy.http.ending.endings import FAILFAST as FAILFAST
from proxy.http.ending.endings import LOAD_SHED as LOAD_SHED
from proxy.http.ending.endings import UNEXPECTED as UNEXPECTED
from proxy.http.ending.endings import Failure as Failure
from proxy.http.ending.endings import overridden
from proxy.http.ending.explanation import Explanation, explain
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2, ResponseHead
from proxy.metrics.registry import Registry
from proxy.outbound.http.advice import advice_for

_log: Final = logging.getLogger(__name__)


TIMEOUT: Final = Failure(
    504,
    grpc.DEADLINE_EXCEEDED,
    False,
    "response timeout",
    "timed out waiting for response headers",
    "RESPONSE_HEADERS_TIMEOUT",
)
IDENTITY_REQUIRED: Final = Failure(502, grpc.UNAVAILABLE, True, "identity required", word="UNKNOWN")
NO_DISPATCHER: Final = Failure(502, grpc.UNAVAILABLE, True, "unexpected", word="UNKNOWN")
NO_ROUTE: Final = endings.NO_ROUTE._replace(label="unexpected")
NOT_DISCOVERED: Final = Failure(502, grpc.UNAVAILABLE, False, "not served")
"""Ours: an explicit client named something that no workload serves."""
UNRESOLVED: Final = Failure(502, grpc.UNAVAILABLE, False, "unresolved")
"""Ours: no name server knows what an explicit client named."""
NOT_HTTP: Final = Failure(502, grpc.UNAVAILABLE, False, "not http")
"""Ours: an explicit client sent a request to a destination that does not speak HTTP."""
NOT_ANSWERED: Final = Failure(504, grpc.DEADLINE_EXCEEDED, False, "unknown")
"""Ours: the control plane did not answer in time what an explicit client's destination is."""
BAD_REQUEST: Final = Failure(400, grpc.INVALID_ARGUMENT, False, "bad request")
"""Ours: an explicit client's request cannot be understood."""
FORBIDDEN: Final = Failure(403, grpc.PERMISSION_DENIED, False, "forbidden")
"""Ours: an explicit client that is not on loopback named something outside the mesh."""
LOOP: Final = FORBIDDEN._replace(label="loop")
"""Ours: an explicit client named this proxy itself, or a proxy that sent its request back."""

_BAD_GATEWAY: Final = Failure(502, grpc.UNAVAILABLE, True)
_CONNECT: Final = "client error (Connect)"
_UNEXPECTED_TEXT: Final = "unexpected error"
"""The text that clients get for an exception; its details are in the log."""

_FAILURES: Final = overridden(
    {
        **dict.fromkeys(
            (
                Reason.COMPLETE,
                Reason.EARLY_RESPONSE,
                Reason.PEER_CLOSED,
                Reason.CONNECTION_RESET,
                Reason.PROTOCOL_ERROR,
                Reason.FLOW_CONTROL,
                Reason.FRAME_SIZE,
                Reason.COMPRESSION,
                Reason.STREAM_CLOSED,
                Reason.PEER_SILENT,
                Reason.RESET_FLOOD,
                Reason.CONTROL_FLOOD,
                Reason.HEADER_FLOOD,
                Reason.SLOW_OPENING,
                Reason.STALLED,
                Reason.CANCELLED,
            ),
            _BAD_GATEWAY,
        ),
        Reason.CONNECT_FAILED: _BAD_GATEWAY._replace(text=_CONNECT),
        Reason.CONNECT_TIMEOUT: Failure(504, grpc.DEADLINE_EXCEEDED, True, text=_CONNECT),
        Reason.RESPONSE_TIMEOUT: TIMEOUT,
        Reason.REQUEST_TIMEOUT: TIMEOUT._replace(word="REQUEST_TIMEOUT"),
        Reason.STREAM_TIMEOUT: TIMEOUT._replace(word="RESPONSE_STREAM_TIMEOUT"),
        Reason.IDLE_TIMEOUT: TIMEOUT._replace(word="IDLE_TIMEOUT"),
        Reason.SHUTDOWN: LOAD_SHED._replace(text="service unavailable"),
        Reason.INTERNAL: UNEXPECTED._replace(text=_UNEXPECTED_TEXT),
    }
)
"""An endpoint's connection that fails takes the client's along, as Linkerd has it, where the request itself is not at fault."""


def failure_of(reason: Reason) -> Failure:
    """The answer to a client whose endpoint failed for this reason."""
    return _FAILURES[reason]


_CONNECTING: Final = (Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT)


class Explained(NamedTuple):
    said: str
    why: str
    reason: Reason


class Rescue:
    """The one of this worker; also `fail`, for the stages' own failures."""

    __slots__ = ("informs", "_registry", "_troubles")

    def __init__(self, registry: Registry, is_silent: bool, troubles: Troubles) -> None:
        """`is_silent` is OUTBOUND_DISABLE_INFORMATIONAL_HEADERS: answers state what failed, never why."""
        self.informs: bool = not is_silent
        self._registry = registry
        self._troubles = troubles

    def rescue(self, exchange: Exchange, reason: Reason) -> None:
        """The endpoint's connection or stream failed before its response began."""
        downgraded = orig_proto.downgraded_error(reason, exchange.reset_code)
        if downgraded is not None:
            if exchange.request.version == HTTP_2:
                exchange.server.reset(reason)
                exchange.request_reset(reason)
            else:
                self.fail(exchange, _BAD_GATEWAY, downgraded, reason)
            return
        failure = _FAILURES[reason]
        self.fail(exchange, failure, failure.text, reason)

    def fail(
        self, exchange: Exchange, failure: Failure, text: str, reason: Reason = Reason.COMPLETE, why: str = ""
    ) -> None:
        """Answer `<context>: <text>`; `why` is added where there is room for it, in a body."""
        if failure.label:
            self._registry.counter("outbound_http_errors_total", (("error", failure.label),)).add()
        exchange.failure = failure.word
        context = context_of(exchange)
        said = f"{context}: {text}" if context else text
        if failure.status == UNEXPECTED.status and failure.label == UNEXPECTED.label:
            # As in Linkerd, unexpected errors are for the log and not for clients.
            _log.warning("Request failed: %s", said)
            said = _UNEXPECTED_TEXT
        head = replies.answer(exchange.request, failure.status, failure.grpc_code, said, self.informs, failure.closes)
        body = self._explained(exchange, head, failure, Explained(said, why, reason))
        exchange.reply(head, reason, closes=failure.closes, body=body)

    def _explained(self, exchange: Exchange, head: ResponseHead, failure: Failure, given: Explained) -> bytes:
        """Log it, and explain it to the client if it may know."""
        why = given.why
        if not why and given.reason in _CONNECTING:
            why = self._troubles.of(given.said.rpartition("endpoint ")[2].partition(": ")[0])
        if given.said != _UNEXPECTED_TEXT:
            _log.info("Request failed: %s%s", given.said, f": {why}" if why else "")
        if not self.informs:
            return b""
        advice = advice_for(failure.label, given.reason, why)
        return explain(head, exchange.request, Explanation("client's", given.said, why, advice))

    def redirect(self, exchange: Exchange, status: int, location: bytes) -> None:
        head = replies.redirect(exchange.request, status, location, "redirected", self.informs)
        exchange.reply(head, Reason.COMPLETE)


def context_of(exchange: Exchange) -> str:
    """The names of the route, backend or endpoint that has the request, for texts; empty before a route took it."""
    place = exchange.endpoint or exchange.backend or exchange.route
    return place.context if place is not None else ""
