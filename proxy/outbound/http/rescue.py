"""Rescue: how what failed becomes an answer (docs/linkerd/outbound.md, section 10; recorded texts in tests/data/outbound-errors.json).

One table says what each failure is over HTTP, over gRPC, and for the
client's connection. The text is the chain of names down to what failed,
which `exchange.context()` gives.
"""

from __future__ import annotations

import logging
from typing import Final

from proxy.core.reason import Reason
from proxy.http import endings, grpc, orig_proto, replies
from proxy.http.endings import FAILFAST as FAILFAST
from proxy.http.endings import LOAD_SHED as LOAD_SHED
from proxy.http.endings import UNEXPECTED as UNEXPECTED
from proxy.http.endings import Failure as Failure
from proxy.http.endings import overridden
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2
from proxy.metrics.registry import Registry

_log: Final = logging.getLogger(__name__)


TIMEOUT: Final = Failure(
    504, grpc.DEADLINE_EXCEEDED, False, "response timeout", "timed out waiting for response headers"
)
IDENTITY_REQUIRED: Final = Failure(502, grpc.UNAVAILABLE, True, "identity required")
NO_DISPATCHER: Final = Failure(502, grpc.UNAVAILABLE, True, "unexpected")
NO_ROUTE: Final = endings.NO_ROUTE._replace(label="unexpected")
NOT_DISCOVERED: Final = Failure(502, grpc.UNAVAILABLE, False, "unexpected")
"""Ours: an explicit client named what nobody serves."""
NOT_HEARD_OF: Final = Failure(504, grpc.DEADLINE_EXCEEDED, False, "unexpected")
"""Ours: nobody says in time what an explicit client's destination is."""
BAD_REQUEST: Final = Failure(400, grpc.INVALID_ARGUMENT, False, "unexpected")
"""Ours: what an explicit client says cannot be understood."""
FORBIDDEN: Final = Failure(403, grpc.PERMISSION_DENIED, False, "unexpected")
"""Ours: an explicit client that is not on loopback named what is not the mesh's."""

_BAD_GATEWAY: Final = Failure(502, grpc.UNAVAILABLE, True)
_CONNECT: Final = "client error (Connect)"

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
        Reason.SHUTDOWN: LOAD_SHED._replace(text="service unavailable"),
        Reason.INTERNAL: UNEXPECTED._replace(text="unexpected error"),
    }
)
"""An endpoint's connection that fails takes the client's along, as Linkerd has it, where the request itself is not at fault."""


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
        failure = _FAILURES[reason]
        self.fail(exchange, failure, failure.text, reason)

    def fail(self, exchange: Exchange, failure: Failure, text: str, reason: Reason = Reason.COMPLETE) -> None:
        """Answer `<context>: <text>`."""
        if failure.label:
            self._registry.counter("outbound_http_errors_total", (("error", failure.label),)).add()
        context = exchange.context()
        said = f"{context}: {text}" if context else text
        if failure.status == UNEXPECTED.status and failure.label == UNEXPECTED.label:
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
