"""Rescue: how what failed becomes an answer (docs/linkerd/outbound.md, section 10; recorded texts in tests/data/outbound-errors.json).

One table says what each failure is over HTTP, over gRPC, and for the
client's connection. The text is the chain of names down to what failed; a
stage has put it into `exchange.context`.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from proxy.core.reason import Reason
from proxy.http import grpc, orig_proto, replies
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2
from proxy.metrics.registry import Registry

_log: Final = logging.getLogger(__name__)


class Failure(NamedTuple):
    status: int
    grpc_code: int
    closes: bool
    """The client's connection goes down after the answer."""
    label: str
    """Of outbound_http_errors_total; empty if it is not counted."""


FAILFAST: Final = Failure(504, grpc.DEADLINE_EXCEEDED, True, "failfast")
LOAD_SHED: Final = Failure(503, grpc.UNAVAILABLE, True, "loadshed")
TIMEOUT: Final = Failure(504, grpc.DEADLINE_EXCEEDED, False, "response timeout")
IDENTITY_REQUIRED: Final = Failure(502, grpc.UNAVAILABLE, True, "identity required")
NO_DISPATCHER: Final = Failure(502, grpc.UNAVAILABLE, True, "unexpected")
NO_ROUTE: Final = Failure(404, grpc.NOT_FOUND, False, "unexpected")
UNEXPECTED: Final = Failure(500, grpc.INTERNAL, True, "unexpected")
NOT_DISCOVERED: Final = Failure(502, grpc.UNAVAILABLE, False, "unexpected")
"""Ours: an explicit client named what nobody serves."""
NOT_HEARD_OF: Final = Failure(504, grpc.DEADLINE_EXCEEDED, False, "unexpected")
"""Ours: nobody says in time what an explicit client's destination is."""
BAD_REQUEST: Final = Failure(400, grpc.INVALID_ARGUMENT, False, "unexpected")
"""Ours: what an explicit client says cannot be understood."""
FORBIDDEN: Final = Failure(403, grpc.PERMISSION_DENIED, False, "unexpected")
"""Ours: an explicit client that is not on loopback named what is not the mesh's."""

_BAD_GATEWAY: Final = Failure(502, grpc.UNAVAILABLE, True, "")
_CONNECT_TIMEOUT: Final = Failure(504, grpc.DEADLINE_EXCEEDED, True, "")
_NOT_TAKEN: Final = Failure(431, grpc.RESOURCE_EXHAUSTED, False, "")
"""The request is more than its endpoint has announced to take."""
_TOO_LONG: Final = Failure(502, grpc.RESOURCE_EXHAUSTED, False, "")
"""The endpoint's response is more than we take: no fault of the client's."""
_CONNECT: Final = "client error (Connect)"

_OF_REASON: Final[dict[Reason, tuple[Failure, str]]] = {
    Reason.CONNECT_FAILED: (_BAD_GATEWAY, _CONNECT),
    Reason.CONNECT_TIMEOUT: (_CONNECT_TIMEOUT, _CONNECT),
    Reason.RESPONSE_TIMEOUT: (TIMEOUT, "timed out waiting for response headers"),
    Reason.OVER_LIMIT: (_NOT_TAKEN, Reason.OVER_LIMIT.value),
    Reason.PEER_TRAILERS_LIMIT: (_NOT_TAKEN, Reason.PEER_TRAILERS_LIMIT.value),
    Reason.RESPONSE_HEAD_LIMIT: (_TOO_LONG, Reason.RESPONSE_HEAD_LIMIT.value),
    Reason.TRAILERS_LIMIT: (_TOO_LONG, Reason.TRAILERS_LIMIT.value),
    Reason.SHUTDOWN: (LOAD_SHED, "service unavailable"),
    Reason.UNSUPPORTED: (Failure(502, grpc.UNAVAILABLE, False, ""), Reason.UNSUPPORTED.value),
    Reason.INTERNAL: (UNEXPECTED, "unexpected error"),
}
"""What an endpoint's connection or stream can end with before a response; a 502 that says why if not listed."""


class Rescue:
    """The one of this worker; also `fail`, for the stages' own failures."""

    __slots__ = ("_registry", "_is_silent")

    def __init__(self, registry: Registry, is_silent: bool) -> None:
        self._registry = registry
        self._is_silent = is_silent
        """OUTBOUND_DISABLE_INFORMATIONAL_HEADERS: say what, never why."""

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
        failure, text = _OF_REASON.get(reason, (_BAD_GATEWAY, reason.value))
        self.fail(exchange, failure, text, reason)

    def fail(self, exchange: Exchange, failure: Failure, text: str, reason: Reason = Reason.COMPLETE) -> None:
        """Answer `<context>: <text>`."""
        if failure.label:
            self._registry.counter("outbound_http_errors_total", (("error", failure.label),)).add()
        said = f"{exchange.context}: {text}" if exchange.context else text
        if failure is UNEXPECTED:
            # As Linkerd: what nobody foresaw is for the log, not for clients.
            _log.warning("Request failed: %s", said)
            said = "unexpected error"
        head = replies.answer(
            exchange.request, failure.status, failure.grpc_code, said, not self._is_silent, failure.closes
        )
        exchange.reply(head, reason, closes=failure.closes)

    def redirect(self, exchange: Exchange, status: int, location: bytes) -> None:
        head = replies.redirect(exchange.request, status, location, "redirected", not self._is_silent)
        exchange.reply(head, Reason.COMPLETE)
