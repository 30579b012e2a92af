"""inbound_http_* and inbound_grpc_*: requests by the route that permitted them (docs/linkerd/metrics.md, section 8).

The numbers are looked up when the first request takes the route, and shared by all connections; a request only adds to numbers.
"""

from __future__ import annotations

from typing import Final

from proxy.core.histogram import Histogram
from proxy.http.exchange import Exchange
from proxy.inbound import labels
from proxy.metrics.cells import Counter, Labels
from proxy.metrics.registry import Registry
from proxy.metrics.shown import status_text
from proxy.metrics.statuses import Statuses
from proxy.policy.meta import Meta
from proxy.policy.routes.outcome import RouteOutcomes
from proxy.policy.server import ServerRoute


class RouteNumbers(RouteOutcomes):
    __slots__ = ("requests", "request_frames", "response_frames", "_request_duration_s", "_response_duration_s")

    def __init__(self, registry: Registry, server: Meta, port: int, route: ServerRoute) -> None:
        of = "inbound_grpc" if route.is_grpc else "inbound_http"
        named = (*labels.parent(server, port), *labels.route(route.meta))
        super().__init__(Statuses(registry, f"{of}_statuses_total", named, _spell), route.is_grpc)
        self.requests: Final[Counter] = registry.counter(f"{of}_requests_total", named)
        self.request_frames: Final[Histogram] = registry.histogram(f"{of}_request_frame_size_bytes", named)
        self.response_frames: Final[Histogram] = registry.histogram(f"{of}_response_frame_size_bytes", named)
        self._request_duration_s: Final = registry.histogram(f"{of}_request_duration_seconds", named)
        self._response_duration_s: Final = registry.histogram(f"{of}_response_duration_seconds", named)

    def begin(self, exchange: Exchange) -> None:
        """The request is passed on."""
        self.requests.value += 1
        exchange.outcomes = (self,)
        exchange.request_frames = self.request_frames
        exchange.response_frames = self.response_frames

    # ---- RouteOutcomes

    def took(self, exchange: Exchange, now: float) -> None:
        self._request_duration_s.observe(now - exchange.accepted_at)
        self._response_duration_s.observe(now - exchange.request_ended_at if exchange.request_ended else 0.0)


def _spell(status: int, error: str) -> Labels:
    """On this side no label has the reason why a response is not whole."""
    return (("status", status_text(status)),)
