"""RetryPolicy: which responses of a route are retried, and how often (docs/linkerd/outbound.md, section 8.3).

One per rule, shared by all of its requests. `RouteRetries` implements what HTTPRoutes and GRPCRoutes say: a limit for
each request. A ServiceProfile has a budget that all of its requests share.
"""

from __future__ import annotations

from typing import Final, Protocol

from proxy.core.backoff import Backoff
from proxy.core.failure.reason import Reason
from proxy.http import grpc, orig_proto
from proxy.http.ending import replies
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2, RequestHead, ResponseHead
from proxy.http.headers import Field
from proxy.outbound.http.numbers import RetryNumbers
from proxy.outbound.http.rescue import failure_of
from proxy.policy.client import Retry

PASS: Final = 0
"""The client gets this response."""
RETRY: Final = 1
"""The request is to be sent again."""
UNREPEATABLE: Final = 3
"""As RETRY, but what has been sent of the request is not at hand any more."""
WAIT: Final = 2
"""The head does not decide; trailers will, if they come first or right behind the first data."""


class RetryPolicy(Protocol):
    @property
    def max_request_bytes(self) -> int:
        """The longest body that is kept for another attempt."""

    @property
    def is_timed(self) -> bool:
        """Whether some attempt has a timeout of its own (`try_timeout_s`)."""

    def on_head(self, request: RequestHead, head: ResponseHead, end: bool) -> int:
        """PASS, RETRY or WAIT for a response's head. `end`: nothing comes behind the head."""

    def on_trailers(self, request: RequestHead, head: ResponseHead, trailers: list[Field] | None) -> int:
        """PASS or RETRY for a response that had to wait. `trailers` is None if it ended, or went on, without any."""

    def on_failure(self, exchange: Exchange, reason: Reason) -> int:
        """PASS or RETRY for an attempt that got no response."""

    def on_failfast(self) -> int:
        """PASS or RETRY for a request that waited for an endpoint in vain."""

    def permits(self, retries: int) -> bool:
        """Whether a request that has been sent again this many times may be sent once more. Called once for each
        retry, and counts it: if several requests share a budget, the retry is taken from it here.
        """

    def wait_s(self, retries: int) -> float:
        """How long to wait before that; 0 for not at all. `retries` as above."""

    def try_timeout_s(self, retries: int) -> float | None:
        """How long the response head of an attempt may take, once the request is sent, before the request goes again."""

    def began(self) -> None:
        """A retry that was permitted begins."""

    def overflowed(self) -> None:
        """A retry that was permitted does not begin, since no backend takes requests."""

    def settled(self, retries: int, verdict: int) -> None:
        """The client gets this response, and the request is not sent again. `verdict` is RETRY if it would have been
        retried, UNREPEATABLE if so, but for the request.
        """


class RouteRetries:
    __slots__ = (
        "max_request_bytes",
        "is_timed",
        "retry",
        "_numbers",
        "_status_is_retried",
        "_grpc_codes",
        "_max_retries",
        "_backoff",
    )

    def __init__(self, retry: Retry, numbers: RetryNumbers) -> None:
        self.retry: Final = retry
        self.max_request_bytes: Final = retry.max_request_bytes
        self.is_timed: Final = retry.timeout_s is not None
        self._numbers = numbers
        self._status_is_retried: Final = bytes(
            any(start <= status <= end for start, end in retry.statuses) for status in range(600)
        )
        self._grpc_codes: Final = retry.grpc_codes
        self._max_retries: Final = retry.max_retries
        self._backoff: Backoff | None = retry.backoff

    def on_head(self, request: RequestHead, head: ResponseHead, end: bool) -> int:
        if self._grpc_codes:
            code = grpc.code_in(head.fields)
            if code in self._grpc_codes:
                return RETRY
            # HTTP/1 has no trailers that mean anything to gRPC.
            if code < 0 and not end and head.version == HTTP_2 and not self._is_retried(head.status):
                return WAIT
        status = head.status
        return self._status_is_retried[status] if status < 600 else PASS

    def on_trailers(self, request: RequestHead, head: ResponseHead, trailers: list[Field] | None) -> int:
        return RETRY if trailers is not None and grpc.code_in(trailers) in self._grpc_codes else PASS

    def on_failure(self, exchange: Exchange, reason: Reason) -> int:
        if reason is Reason.RESPONSE_TIMEOUT:
            return RETRY
        request = exchange.request
        if orig_proto.downgraded_error(reason, exchange.reset_code) is not None and request.version == HTTP_2:
            return RETRY if reason is Reason.PEER_REFUSED else PASS  # HTTP/2's own resets reach the client as they are
        failure = failure_of(reason)
        if replies.is_grpc(request):
            return RETRY if failure.grpc_code in self._grpc_codes else self._is_retried(200)
        return self._is_retried(failure.status)

    def on_failfast(self) -> int:
        return RETRY

    def permits(self, retries: int) -> bool:
        if retries >= self._max_retries:
            self._numbers.limits_exceeded.add()
            return False
        return True

    def wait_s(self, retries: int) -> float:
        backoff = self._backoff
        return 0.0 if backoff is None else backoff.wait_s(retries)

    def try_timeout_s(self, retries: int) -> float | None:
        # The last one may take its time: nothing is gained by giving it up.
        return self.retry.timeout_s if retries < self._max_retries else None

    def began(self) -> None:
        self._numbers.requests.add()

    def overflowed(self) -> None:
        self._numbers.overflows.add()

    def settled(self, retries: int, verdict: int) -> None:
        if retries and verdict == PASS:
            self._numbers.successes.add()

    def _is_retried(self, status: int) -> int:
        return self._status_is_retried[status] if status < 600 else PASS
