"""inbound_http_* and inbound_grpc_*: requests by the route that permitted them (docs/linkerd/metrics.md, section 8).

They are looked up when the first request takes the route, and shared by all connections; a request only adds to numbers.
"""

from __future__ import annotations

from typing import Final

from proxy.core.histogram import Histogram
from proxy.http import grpc
from proxy.http.exchange import Exchange
from proxy.http.head import TUNNEL, ResponseHead
from proxy.inbound import labels
from proxy.metrics.cells import Counter, Labels
from proxy.metrics.registry import Registry
from proxy.metrics.statuses import NO_STATUS, Statuses
from proxy.policy.meta import Meta
from proxy.policy.server import ServerRoute


class RouteNumbers:
    __slots__ = (
        "requests", "request_frames", "response_frames", "_request_duration_s", "_response_duration_s", "_statuses", "_is_grpc",
    )  # fmt: skip

    def __init__(self, registry: Registry, server: Meta, port: int, route: ServerRoute) -> None:
        of = "inbound_grpc" if route.is_grpc else "inbound_http"
        named = (*labels.parent(server, port), *labels.route(route.meta))
        self.requests: Final[Counter] = registry.counter(f"{of}_requests_total", named)
        self.request_frames: Final[Histogram] = registry.histogram(f"{of}_request_frame_size_bytes", named)
        self.response_frames: Final[Histogram] = registry.histogram(f"{of}_response_frame_size_bytes", named)
        self._request_duration_s: Final = registry.histogram(f"{of}_request_duration_seconds", named)
        self._response_duration_s: Final = registry.histogram(f"{of}_response_duration_seconds", named)
        self._statuses: Final = Statuses(registry, f"{of}_statuses_total", named, _spell)
        self._is_grpc: Final = route.is_grpc

    def begin(self, exchange: Exchange) -> None:
        """The request is passed on."""
        self.requests.value += 1
        exchange.request_frames = self.request_frames
        exchange.response_frames = self.response_frames

    def response_began(self, exchange: Exchange) -> None:
        """A tunnel's response is over when it begins: it has no body."""
        response = exchange.response
        if response is not None and response.body_size == TUNNEL:
            self._count(exchange, response, exchange.answered_at)

    def exchange_ended(self, exchange: Exchange) -> None:
        response = exchange.response
        if response is None:
            if exchange.failure:
                self._count(exchange, None, exchange.ended_at)
        elif response.body_size != TUNNEL:
            self._count(exchange, response, exchange.ended_at)

    def _count(self, exchange: Exchange, response: ResponseHead | None, now: float) -> None:
        self._request_duration_s.observe(now - exchange.accepted_at)
        self._response_duration_s.observe(now - exchange.request_ended_at if exchange.request_ended else 0.0)
        if exchange.failure and exchange.response_ended:
            response = None  # an answer of ours to a failure
        if response is None:
            self._statuses.count(NO_STATUS)
        elif self._is_grpc:
            found = grpc.status_of(response.fields if exchange.trailers is None else exchange.trailers)
            self._statuses.count(NO_STATUS if found is None else found.code)
        else:
            self._statuses.count(response.status)


def _spell(status: int, error: str) -> Labels:
    return (("status", str(status) if status != NO_STATUS else ""),)
