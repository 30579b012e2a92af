"""Rescue: answers for requests that failed (docs/linkerd/inbound.md, section 11; recorded texts in tests/data).

One table gives the answer to each failure over HTTP, over gRPC, and for the
client's connection. Only a meshed client gets the reason. The text of a failure
of the app stands alone; that of a decision made here follows the connection's
name.
"""

from __future__ import annotations

from typing import Final

from proxy.core.address.addr import port_number
from proxy.core.failure.reason import Reason
from proxy.core.log import event, logger
from proxy.http import grpc
from proxy.http.ending.endings import FAILFAST as FAILFAST
from proxy.http.ending.endings import LOAD_SHED as LOAD_SHED
from proxy.http.ending.endings import NO_ROUTE as NO_ROUTE
from proxy.http.ending.endings import UNEXPECTED as UNEXPECTED
from proxy.http.ending.endings import Failure as Failure
from proxy.http.ending.endings import overridden
from proxy.http.ending.explanation import Explanation, explain
from proxy.http.ending.replies import answer, redirect
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2
from proxy.inbound import labels
from proxy.inbound.arrived import Arrived
from proxy.inbound.http.advice import advice_for
from proxy.inbound.runtime import Runtime

_log: Final = logger(__name__)


DENIED: Final = Failure(403, grpc.PERMISSION_DENIED)
RATE_LIMITED: Final = Failure(429, grpc.RESOURCE_EXHAUSTED, False, "unexpected")
INVALID_POLICY: Final = Failure(500, grpc.INTERNAL, True, "unexpected")

_BAD_GATEWAY: Final = Failure(502, grpc.UNAVAILABLE, True)

_FAILURES: Final = overridden(
    {
        Reason.CONNECT_FAILED: _BAD_GATEWAY._replace(text="client error (Connect)"),
        Reason.CONNECT_TIMEOUT: Failure(504, grpc.DEADLINE_EXCEEDED, True, text="client error (Connect)"),
        Reason.CONNECTION_RESET: _BAD_GATEWAY._replace(text="client error (SendRequest)"),
        Reason.INTERNAL: UNEXPECTED._replace(text="unexpected error"),
    }
)
"""An app that broke off or did not speak HTTP loses its own connection only, and the client's stays (Linkerd answers 500)."""


_CONNECTING: Final = (Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT)


class InboundRescue:
    """Made per accepted connection."""

    __slots__ = ("informs", "_arrived", "_registry", "_troubles", "_is_http2")

    def __init__(self, arrived: Arrived, runtime: Runtime, is_http2: bool) -> None:
        self._arrived: Final = arrived
        self._registry: Final = runtime.registry
        self._troubles: Final = runtime.troubles
        self._is_http2: Final = is_http2
        self.informs: bool = arrived.tls.is_meshed
        """Only a meshed client gets the reason of a failure."""

    def rescue(self, exchange: Exchange, reason: Reason) -> None:
        """The app's connection or stream failed before its response began."""
        if reason is Reason.PEER_RESET or reason is Reason.PEER_REFUSED:
            # Over HTTP/2 with the app's own error code; an HTTP/1 client sees its connection close.
            exchange.failure = UNEXPECTED.word
            exchange.server.reset(reason)
            exchange.request_reset(reason)
            return
        failure = _FAILURES[reason]
        self._reply(exchange, failure, failure.text, reason)

    def fail(self, exchange: Exchange, failure: Failure, text: str) -> None:
        """Answer a request that was refused here."""
        arrived = self._arrived
        if failure.label:
            self._count(failure.label)
        self._reply(exchange, failure, f"client {arrived.peer}: server: {arrived.target}: {text}", Reason.COMPLETE)

    def unexpected(self, exchange: Exchange, text: str) -> None:
        """Answer 500 without the reason, which is in the log."""
        arrived = self._arrived
        where = f"rescue{{client.addr={arrived.peer}}}"
        error = f"client {arrived.peer}: server: {arrived.target}: {text}"
        _log.warning("Unexpected error", extra=event("inbound", where, error=error))
        self._count(UNEXPECTED.label)
        self._reply(exchange, UNEXPECTED, "unexpected error", Reason.COMPLETE)

    def redirect(self, exchange: Exchange, status: int, location: bytes) -> None:
        """Redirect the client. Counted among the errors, as Linkerd counts it (docs/linkerd/inbound.md, section 7)."""
        self._count(UNEXPECTED.label)
        head = redirect(exchange.request, status, location, "redirected", self.informs)
        if self._is_http2:
            head.version = HTTP_2
        exchange.reply(head, Reason.COMPLETE)

    # ---- what local.py answers

    def fail_fast(self, exchange: Exchange) -> None:
        self.fail(exchange, FAILFAST, f"{self._service(exchange)}service in fail-fast")

    def shed(self, exchange: Exchange) -> None:
        self.fail(exchange, LOAD_SHED, f"{self._service(exchange)}service unavailable")

    def _count(self, error: str) -> None:
        arrived = self._arrived
        counted = (("error", error), *labels.target(arrived.target), *arrived.server_labels())
        self._registry.counter("inbound_http_errors_total", counted).add()

    def _service(self, exchange: Exchange) -> str:
        authority = exchange.request.authority.decode("latin-1")
        if not authority:
            return ""
        port = "" if port_number(authority.rpartition(":")[2]) else ":80"
        return f"server {self._arrived.target}: service {authority}{port}: "

    def _reply(self, exchange: Exchange, failure: Failure, text: str, reason: Reason) -> None:
        version = "HTTP/2" if exchange.request.version == HTTP_2 else "HTTP/1.1"
        where = f"rescue{{client.addr={self._arrived.peer}}}"
        _log.info("%s request failed", version, extra=event("inbound", where, error=text))
        exchange.failure = failure.word
        head = answer(exchange.request, failure.status, failure.grpc_code, text, self.informs, failure.closes)
        if self._is_http2 and reason is Reason.COMPLETE:
            head.version = HTTP_2  # decided before the request was taken for HTTP/1: not marked as carried
        body = explain(head, exchange.request, self._explanation(failure, text, reason)) if self.informs else b""
        exchange.reply(head, reason, closes=failure.closes, body=body)

    def _explanation(self, failure: Failure, text: str, reason: Reason) -> Explanation:
        target = str(self._arrived.target)
        what = text if reason is Reason.COMPLETE else f"app at {target}: {text}"
        why = self._troubles.of(target) if reason in _CONNECTING or failure in (FAILFAST, LOAD_SHED) else ""
        return Explanation("server's", what, why, advice_for(failure.status, reason))
