"""ProfileRetries: which responses of a ServiceProfile's route are retried, and out of which budget (docs/linkerd/service-profiles.md, section 5.2).

A RetryPolicy. What counts as a failure is retried, whatever the method, as soon as it is known and as often as the budget
has enough: the budget, which all routes of the profile share, is what keeps retries from adding to an outage.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http import grpc, orig_proto
from proxy.http.ending.replies import is_grpc
from proxy.http.exchange import Exchange
from proxy.http.head import HTTP_2, RequestHead, ResponseHead
from proxy.http.headers import Field
from proxy.metrics.cells import Labels
from proxy.metrics.registry import Registry
from proxy.outbound.http.profile.budget import SharedBudget
from proxy.outbound.http.rescue import failure_of
from proxy.outbound.http.retry.policy import PASS, RETRY, WAIT
from proxy.policy.profiles.classify import ClassifyingRoute

_NEVER_SENT: Final = (Reason.INTERNAL, Reason.SHUTDOWN)
"""Reasons that do not count as failures of an endpoint."""


class ProfileRetries:
    __slots__ = ("max_request_bytes", "is_timed", "_route", "_shared", "_retryable", "_no_budget")

    def __init__(self, route: ClassifyingRoute, shared: SharedBudget, registry: Registry, labels: Labels) -> None:
        self.max_request_bytes: Final = limits.PROFILE_REPLAY_BYTES
        self.is_timed: Final = False
        self._route = route
        self._shared = shared
        self._retryable = registry.counter("route_retryable_total", labels)
        self._no_budget = registry.counter("route_retryable_total", (*labels, ("skipped", "no_budget")))

    # ---- RetryPolicy

    def on_head(self, request: RequestHead, head: ResponseHead, end: bool) -> int:
        route, status = self._route, head.status
        if route.has_classes:
            if status in route.classes.failures:
                return RETRY
            if status in route.classes.successes:
                return PASS
        elif not is_grpc(request):
            return RETRY if status >= 500 else PASS
        code = grpc.code_in(head.fields)
        if code >= 0:
            return RETRY if code in grpc.FAILURES else PASS
        if status >= 500 and route.has_classes:
            return RETRY
        # HTTP/1 has no trailers that mean anything to gRPC.
        return WAIT if not end and head.version == HTTP_2 and is_grpc(request) else PASS

    def on_trailers(self, request: RequestHead, head: ResponseHead, trailers: list[Field] | None) -> int:
        return RETRY if trailers is not None and grpc.code_in(trailers) in grpc.FAILURES else PASS

    def on_failure(self, exchange: Exchange, reason: Reason) -> int:
        """Classify the answer that stands for the endpoint's failure, as if the endpoint had sent it. A stream that an
        endpoint reset is not retried for an HTTP/2 client, which gets the reset.
        """
        request = exchange.request
        if reason in _NEVER_SENT:
            return PASS
        if request.version == HTTP_2 and orig_proto.downgraded_error(reason, exchange.reset_code) is not None:
            return PASS
        failure = failure_of(reason)
        if is_grpc(request):
            return RETRY if failure.grpc_code in grpc.FAILURES else PASS
        return self.on_head(request, ResponseHead(failure.status, [], 0), True)

    def on_failfast(self) -> int:
        return PASS

    def permits(self, retries: int) -> bool:
        self._retryable.add()
        if self._shared.withdraw():
            return True
        self._no_budget.add()
        return False

    def wait_s(self, retries: int) -> float:
        return 0.0

    def try_timeout_s(self, retries: int) -> float | None:
        return None

    def began(self) -> None:
        """Nothing to do: `permits` has counted it."""

    def overflowed(self) -> None:
        """Nothing to do: `permits` has counted it."""

    def settled(self, retries: int, verdict: int) -> None:
        """A request that ends without another attempt pays for those of others; a failure that might have been retried, and
        found the budget empty, does not."""
        if verdict != RETRY:
            self._shared.deposit()
