"""Outcome: what a route's numbers count of each request's end, on both sides (docs/linkerd/metrics.md, sections 7 and 8).

A tunnel is counted when it opens, any other request once, when it has ended. A failed one is counted with its label
(`exchange.failure`); a request whose client left before there was a response is not counted.
"""

from __future__ import annotations

from typing import Final

from proxy.http import grpc
from proxy.http.exchange import Exchange
from proxy.http.head import TUNNEL
from proxy.metrics.statuses import NO_STATUS, Statuses


class RouteOutcomes:
    """The Outcomes of a route's exchanges. The sides differ in the times that they count, for which each has its `took`."""

    __slots__ = ("statuses", "is_grpc")

    def __init__(self, statuses: Statuses, is_grpc: bool) -> None:
        self.statuses: Final = statuses
        self.is_grpc: Final = is_grpc

    def took(self, exchange: Exchange, now: float) -> None:
        """Count how long the request took. `now` is when its response ended, or when it was known that there is none."""
        raise NotImplementedError

    # ---- http.exchange.Outcomes

    def tunnel_began(self, exchange: Exchange) -> None:
        self._count(exchange, exchange.answered_at)

    def exchange_ended(self, exchange: Exchange) -> None:
        response = exchange.response
        failure = exchange.failure
        if response is not None:
            if response.body_size == TUNNEL:
                return
            statuses = self.statuses
            if not failure and response.status == statuses.last_status:  # never of gRPC, whose codes are other numbers
                statuses.last.value += 1
                self.took(exchange, exchange.ended_at)
                return
        elif not failure:
            return
        self._count(exchange, exchange.ended_at)

    def _count(self, exchange: Exchange, now: float) -> None:
        self.took(exchange, now)
        self.statuses.count(counted_status(exchange, self.is_grpc), exchange.failure)


def counted_status(exchange: Exchange, is_grpc: bool) -> int:
    """The HTTP or gRPC status of the response; NO_STATUS if there was none, or only our own answer to a failure."""
    response = exchange.response
    failure = exchange.failure
    if response is None or (failure and exchange.response_ended):
        return NO_STATUS
    if not is_grpc:
        return response.status
    trailers = exchange.trailers
    found = grpc.status_of(response.fields if trailers is None or failure else trailers)
    return NO_STATUS if found is None else found.code
