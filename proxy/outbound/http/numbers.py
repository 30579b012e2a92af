"""The metrics of requests by their route and their backend (docs/linkerd/metrics.md, section 7).

RouteNumbers observes a request as its client sees it, whatever happened to it on the way; BackendNumbers counts each
attempt. Both are looked up when a policy arrives; a request only adds to their numbers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.core.histogram import Histogram
from proxy.http import grpc
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.head import TUNNEL, ResponseHead
from proxy.metrics.cells import Counter, Labels
from proxy.metrics.registry import Registry
from proxy.metrics.shown import status_text
from proxy.metrics.statuses import Statuses
from proxy.outbound import labels
from proxy.policy.meta import Meta
from proxy.policy.routes.outcome import RouteOutcomes, counted_status

# Values of the label `error`. Those of failures that stages answer are defined with the failures (http/ending/endings.py, rescue.py).
UNKNOWN: Final = "UNKNOWN"
IO: Final = "IO"
_OF_CODE: Final = {7: "REFUSED", 8: "CANCEL", 11: "ENHANCE_YOUR_CALM"}
"""Error labels by the HTTP/2 error code of a reset; the others are RESET."""
_LOST: Final = (Reason.PEER_CLOSED, Reason.CONNECTION_RESET, Reason.PEER_SILENT)


class RouteOf(NamedTuple):
    """A route of a policy, by its labels' parts."""

    parent: Meta
    route: Meta
    is_grpc: bool
    """gRPC routes have families of their own, with gRPC's status."""

    @property
    def prefix(self) -> str:
        return "outbound_grpc_route" if self.is_grpc else "outbound_http_route"

    @property
    def labels(self) -> Labels:
        return labels.route(self.parent, self.route)


class RouteNumbers(RouteOutcomes):
    """`names_hosts`: the host of each request is a label (OUTBOUND_METRICS_HOSTNAME_LABELS)."""

    __slots__ = ("of", "_registry", "_duration_s", "_frames", "_hosts")

    def __init__(self, registry: Registry, of: RouteOf, names_hosts: bool, host: str = "") -> None:
        named = (*of.labels, ("hostname", host))
        super().__init__(_statuses(registry, of, "_request_statuses_total", named), of.is_grpc)
        self._registry = registry
        self.of: Final = of
        self._duration_s: Final = registry.histogram(f"{of.prefix}_request_duration_seconds", named)
        self._frames: Final = registry.histogram(f"{of.prefix}_request_frame_size_bytes", named)
        self._hosts: Final[dict[bytes, RouteNumbers] | None] = {} if names_hosts else None

    def of_backend(self, backend: Meta) -> BackendNumbers:
        return BackendNumbers(self._registry, self.of, backend)

    def begin(self, exchange: Exchange) -> None:
        """The request takes this route."""
        numbers = self if self._hosts is None else self._of_host(self._hosts, exchange.request.authority)
        others = exchange.outcomes  # of the inbound side, if it came through the gateway
        exchange.outcomes = (*others, numbers) if others else (numbers,)
        exchange.request_frames = numbers._frames

    def _of_host(self, hosts: dict[bytes, RouteNumbers], authority: bytes) -> RouteNumbers:
        found = hosts.get(authority)
        if found is None:
            if len(hosts) >= limits.LABEL_NAMES:
                hosts.clear()
            found = hosts[authority] = RouteNumbers(self._registry, self.of, False, labels.hostname(authority))
        return found

    # ---- RouteOutcomes

    def took(self, exchange: Exchange, now: float) -> None:
        self._duration_s.observe(now - exchange.dispatched_at)


class BackendNumbers:
    """The numbers of one backend of one route."""

    __slots__ = ("requests", "frames", "_is_grpc", "_duration_s", "_statuses")

    def __init__(self, registry: Registry, of: RouteOf, backend: Meta) -> None:
        named = (*of.labels, *labels.backend(backend))
        self.requests: Final[Counter] = registry.counter(f"{of.prefix}_backend_requests_total", named)
        self.frames: Final[Histogram] = registry.histogram(f"{of.prefix}_backend_response_frame_size_bytes", named)
        self._is_grpc: Final = of.is_grpc
        self._duration_s: Final = registry.histogram(f"{of.prefix}_backend_response_duration_seconds", named)
        self._statuses: Final = _statuses(registry, of, "_backend_response_statuses_total", named)

    # ---- http.attempt.AttemptNumbers

    def attempt_became_tunnel(self, attempt: Attempt, response: ResponseHead) -> None:
        # A gRPC call is never a tunnel.
        self._duration_s.observe(attempt.exchange.answered_at - attempt.sent_at)
        self._statuses.count(response.status)

    def attempt_ended(self, attempt: Attempt) -> None:
        """Called with the end of its exchange. If the client had left before the answer, nothing is counted."""
        exchange = attempt.exchange
        response = exchange.response
        if response is not None and response.body_size == TUNNEL:
            return
        failure = exchange.failure
        if not failure:
            if exchange.response_ended:
                if response is not None and response.status == self._statuses.last_status:
                    self._statuses.last.value += 1
                    if exchange.request_ended:  # _took_s, in place: most attempts end here
                        ended_at, sent_at = exchange.request_ended_at, attempt.sent_at
                        self._duration_s.observe(exchange.ended_at - (sent_at if sent_at > ended_at else ended_at))
                    else:
                        self._duration_s.observe(0.0)
                    return
            else:
                failure = exchange.failure = _failure(attempt, exchange)
                if response is None and not failure:
                    return
        self._duration_s.observe(_took_s(attempt, exchange))
        self._statuses.count(counted_status(exchange, self._is_grpc), failure)


class RetryNumbers:
    """The numbers of one route with retries, made at its first request; from then on they are exported, beginning at
    zero.
    """

    __slots__ = ("requests", "successes", "overflows", "limits_exceeded")

    def __init__(self, registry: Registry, of: RouteOf, host: str = "") -> None:
        named = (*of.labels, ("hostname", host))
        self.requests: Final = registry.counter(f"{of.prefix}_retry_requests_total", named)
        self.successes: Final = registry.counter(f"{of.prefix}_retry_successes_total", named)
        self.overflows: Final = registry.counter(f"{of.prefix}_retry_overflow_total", named)
        self.limits_exceeded: Final = registry.counter(f"{of.prefix}_retry_limit_exceeded_total", named)


def _took_s(attempt: Attempt, exchange: Exchange) -> float:
    """Seconds from the end of the request to the end of the response, or from when the request was sent if all of it
    was here by then. 0 if the response ended first.
    """
    if not exchange.request_ended:
        return 0.0
    ended_at, sent_at = exchange.request_ended_at, attempt.sent_at
    return exchange.ended_at - (sent_at if sent_at > ended_at else ended_at)


def _failure(attempt: Attempt, exchange: Exchange) -> str:
    """Why there is no whole response; empty if there is none because the client had left."""
    reason = exchange.reason
    if not attempt.has_failed:
        return UNKNOWN if exchange.response is not None else ""
    if reason is Reason.PEER_RESET or reason is Reason.PEER_REFUSED:
        return _OF_CODE.get(exchange.reset_code, "RESET")
    return IO if reason in _LOST else UNKNOWN


def _statuses(registry: Registry, of: RouteOf, family: str, named: Labels) -> Statuses:
    return Statuses(registry, of.prefix + family, named, _spell_grpc if of.is_grpc else _spell_http)


def _spell_http(status: int, error: str) -> Labels:
    return ("http_status", status_text(status)), ("error", error)


def _spell_grpc(status: int, error: str) -> Labels:
    name = grpc.NAMES[status] if 0 <= status < len(grpc.NAMES) else grpc.NAMES[grpc.UNKNOWN]
    return ("grpc_status", name), ("error", error)
