"""A small stage for codec tests: name the request for the mesh, pick an endpoint, attach.

Everything that can be resolved before a request comes is resolved when
the stage is built; a dispatch looks up nothing but what the request brings.
"""

from __future__ import annotations

from proxy.balance.load.ewma import PeakEwma
from proxy.balance.load.load import ANSWERED
from proxy.balance.p2c import P2c
from proxy.core.failure.reason import Reason
from proxy.core.loop.reactor import Clock
from proxy.core.loop.timers import Wheel
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.headers import Field, field
from proxy.http.pool import Pool
from tests.kit.attempts import ToPoolAgain


class Scope:
    """Counts responses by status; 0 stands for no response."""

    def __init__(self) -> None:
        self.responses: dict[int, int] = {}

    def ended(self, status: int) -> None:
        self.responses[status] = self.responses.get(status, 0) + 1


class Endpoint:
    """One address: its connections, its load, its numbers. It observes its exchanges."""

    __slots__ = ("pool", "load", "scope", "_clock")

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self.pool = pool
        self.load = PeakEwma(0.03, 10.0, clock())
        self.scope = Scope()
        self._clock = clock

    def response_began(self, exchange: Exchange) -> None:
        pass

    def exchange_ended(self, exchange: Exchange) -> None:
        now = self._clock()
        latency_s = now - exchange.accepted_at
        self.load.end(latency_s, now, ANSWERED)
        response = exchange.response
        self.scope.ended(0 if response is None else response.status)


class Concrete:
    __slots__ = ("_balancer", "_wheel", "_ticks", "_mark", "_marks")

    def __init__(self, balancer: P2c[Endpoint], wheel: Wheel, response_timeout_s: float, mark: Field | None) -> None:
        self._balancer = balancer
        self._wheel = wheel
        self._ticks = wheel.ticks(response_timeout_s)
        self._mark = mark
        """A field that every request gets; None stands for l5d-dst-canonical, which depends on the request."""
        self._marks: dict[bytes, Field] = {}

    def dispatch(self, exchange: Exchange) -> None:
        request = exchange.request
        mark = self._mark or self._marks.get(request.authority) or self._new_mark(request.authority)
        request = request.with_fields([*request.fields, mark])
        endpoint = self._balancer.pick(exchange.accepted_at)
        if endpoint is None:
            exchange.cancel(Reason.CONNECT_FAILED)
            return
        endpoint.load.pending += 1
        exchange.observers = (endpoint,)
        attempt = Attempt(exchange, request, ToPoolAgain(endpoint.pool))
        attempt.answer_within(self._wheel, self._ticks)
        endpoint.pool.open(attempt)

    def _new_mark(self, authority: bytes) -> Field:
        if len(self._marks) > 1024:
            self._marks.clear()
        mark = self._marks[authority] = field(b"l5d-dst-canonical", authority)
        return mark
