"""RetryLink: one client, the proxy's codecs of any two versions, a rule with retries, and endpoints that it dials.

It uses the peers of tests.http.link; `answer_next` plays the endpoint that was asked last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from proxy.core.backoff import Backoff
from proxy.core.connection.in_flight import InFlight
from proxy.core.failure.reason import Reason
from proxy.core.failure.troubles import Troubles
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.h1.server import H1Server
from proxy.http.h2.client import H2Client
from proxy.http.h2.server import H2Server
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.pool import Pool
from proxy.http.repeat.aside import Aside
from proxy.http.repeat.replay import Replay
from proxy.metrics.registry import Registry
from proxy.outbound.http.numbers import RetryNumbers, RouteOf
from proxy.outbound.http.rescue import Rescue
from proxy.outbound.http.retry.context import RetryContext
from proxy.outbound.http.retry.deadlines import Deadlines
from proxy.outbound.http.retry.policy import RetryPolicy, RouteRetries
from proxy.outbound.http.retry.stage import RetryStage
from proxy.outbound.http.retry.tries import Tries
from proxy.policy.client import EMPTY, ClientRule, Distribution, Retry, Timeouts
from proxy.policy.meta import default_meta
from proxy.policy.routes.redirect import Match
from tests.http.link import ENDS
from tests.http.peers import Cut
from tests.kit import Clock, ListWire
from tests.kit.streams import FakeObserver

WAYS = [(near, far) for near in ("h1", "h2") for far in ("h1", "h2")]
SERVER_ERRORS = ((500, 599),)
ROUTE = RouteOf(default_meta("parent"), default_meta("route"), False)
TICK_S = 0.01


def whole(data: bytes) -> list[bytes]:
    return [data]


class Soon:
    """A loop that has nothing but `call_soon`."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def turn(self) -> bool:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()
        return bool(waiting)


class Endpoint:
    """The target of its attempts, and their Place."""

    def __init__(self, link: RetryLink, name: str) -> None:
        self.context = f"endpoint {name}"
        self.pool: Pool = H1Pool(self._dial, link.wheel) if link.way[1] == "h1" else Pool(self._dial)
        self.told: list[str] = []
        self._link = link

    def edit_response(self, attempt: Attempt, head: ResponseHead) -> ResponseHead:
        return head

    def attempt_answered(self, attempt: Attempt) -> None:
        response = attempt.exchange.response
        self.told.append("none" if response is None else str(response.status))

    def attempt_ended(self, attempt: Attempt, reason: Reason) -> None:
        self.told.append(reason.name)

    def _dial(self, pool: Pool) -> Any:
        return self._link.dial(pool)


class RetryLink:
    """A Stage in front of the rule's own stage with its retries."""

    def __init__(
        self,
        near: str,
        far: str,
        policy: Retry | RetryPolicy | ClientRule | None,
        cut: Cut = whole,
        endpoints: int = 2,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.way = (near, far)
        self._cut = cut
        self.clock = Clock()
        self.wheel = Wheel(TICK_S, self.clock.now)
        soon = Soon()
        self.reactor = Reactor(soon, Flusher(soon.call_soon), self.wheel, self.clock)
        self.in_flight = InFlight(100)
        self.context = RetryContext(self.reactor, self.in_flight)
        self.registry = Registry(self.clock)
        self.retries = self.context
        """Stands for the parts of a runtime that a stage uses, beside `registry`."""
        self._stage: RetryStage | None = None
        self.policy: RetryPolicy | None = None
        if isinstance(policy, ClientRule):
            self._stage = RetryStage(self, cast(Any, self), policy, ROUTE)
        elif isinstance(policy, Retry):
            self.policy = RouteRetries(policy, RetryNumbers(self.registry, ROUTE))
        else:
            self.policy = policy
        self.timeouts = timeouts
        self.is_ready = True
        self.rescue = Rescue(self.registry, False, Troubles(self.clock))
        self.fars: list[Any] = []
        self._far: Any = None
        self.endpoints = [Endpoint(self, str(number)) for number in range(endpoints)]
        self.asked: list[Endpoint] = []
        """The endpoint of each attempt, in order."""
        self.exchanges: list[Exchange] = []
        self.observers: list[FakeObserver] = []
        wire = ListWire()
        server = H1Server if near == "h1" else H2Server
        wire.codec = server(wire, self, self.clock, wheel=self.wheel)
        self.near: Any = ENDS[near](wire, cut, True)

    # ---- used by the proxy

    def dispatch(self, exchange: Exchange) -> None:
        observer = FakeObserver()
        exchange.observers = (observer,)
        exchange.rescue = self.rescue
        self.exchanges.append(exchange)
        self.observers.append(observer)
        if self._stage is not None:
            self._stage.route(exchange, exchange.request, None)
        else:
            Tries(self.context, exchange, self.policy, self.timeouts).begin(self, exchange.request, None)

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        previous = exchange.tries.previous if exchange.tries is not None else None
        endpoint = next((one for one in self.endpoints if one is not previous), self.endpoints[0])
        self.asked.append(endpoint)
        attempt = Attempt(exchange, head)
        exchange.endpoint = endpoint
        attempt.target = endpoint
        attempt.exchange.attempt = attempt
        endpoint.pool.open(attempt)

    def dial(self, pool: Pool) -> Any:
        wire = ListWire()
        codec = H1Client(wire, pool) if self.way[1] == "h1" else H2Client(wire, pool, wheel=self.wheel)
        wire.codec = codec
        self.fars.append(ENDS[self.way[1]](wire, self._cut, False))
        return codec

    # ---- used by tests

    @property
    def far(self) -> Any:
        """The connection of the running attempt, or of the last one."""
        client: Any = self.exchange.client
        if isinstance(client, Replay):
            client = client.client
        codec = getattr(client, "connection", client)
        self._far = next((one for one in self.fars if one.codec is codec), self._far or self.fars[-1])
        return self._far

    @property
    def exchange(self) -> Exchange:
        return self.exchanges[-1]

    def settle(self) -> None:
        moved = True
        while moved:
            moved = self.near.move()
            for far in self.fars:
                moved = far.move() or moved
            moved = self.reactor.loop.turn() or moved

    def advance(self, seconds: float) -> None:
        self.clock.now += seconds
        self.wheel.advance(self.clock.now)
        self.settle()

    def ask(
        self, body: bytes = b"", trailers: list[tuple[bytes, bytes]] | None = None, method: bytes = b"POST"
    ) -> None:
        """Send a whole request; a body's length is not announced."""
        self.near.request(method, None if body or trailers else 0)
        if body or trailers:
            if body:
                self.near.send(body)
            self.near.finish(trailers)
        self.settle()

    def call(self, *fields: tuple[bytes, bytes]) -> None:
        """Send a whole gRPC request (HTTP/2)."""
        self.near.request(b"POST", None, (b"content-type", b"application/grpc"), (b"te", b"trailers"), *fields)
        self.near.send(b"\0\0\0\0\0")
        self.near.finish()
        self.settle()

    def answer(self, status: int, body: bytes = b"", trailers: list[tuple[bytes, bytes]] | None = None) -> None:
        """Send a whole answer from the endpoint that was asked last."""
        far = self.far
        far.respond(status, None if trailers else len(body))
        if body:
            far.send(body)
        if body or trailers:
            far.finish(trailers)
        self.settle()

    def armed(self) -> list[object]:
        """The timers that are still armed, without those of pools and of the client's connection."""
        owners = (Tries, Deadlines, Aside)
        timers = [timer for bucket in self.wheel._buckets.values() for timer in bucket]
        return [one for one in timers if isinstance(getattr(one._callback, "__self__", None), owners)]

    def count(self, name: str) -> float:
        return self.registry.counter(f"outbound_http_route_retry_{name}_total", (*ROUTE.labels, ("hostname", ""))).value

    def check(self) -> None:
        """What must be true at the end of every test: each exchange ended and reported that once, and nothing of it is
        left.
        """
        self.advance(5)
        for exchange, observer in zip(self.exchanges, self.observers, strict=True):
            assert exchange.reason is not None, f"{exchange!r} goes on"
            assert [exchange.reason.name] == [one for one in observer.told if one != "began"]
            assert exchange.tries is None and exchange.client is None and exchange.attempt is None
        assert not self.armed()
        assert self.in_flight.count == 0 and self.context.room.held_bytes == 0
        for end in (self.near, *self.fars):
            assert end.wire.is_over or end.is_gone or not end.wire.is_paused, "left paused"
            assert not getattr(end.codec, "streams", None), "left with streams"


def retry(
    most: int = 1,
    statuses: tuple[tuple[int, int], ...] = SERVER_ERRORS,
    grpc_codes: frozenset[int] = frozenset(),
    timeout_s: float | None = None,
    backoff: Backoff | None = None,
    most_bytes: int = 65536,
) -> Retry:
    return Retry(most, most_bytes, statuses, grpc_codes, timeout_s, backoff)


def rule(allows: bool, timeouts: Timeouts | None = None) -> ClientRule:
    """A rule without retries of its own; with `allows` its requests may ask for some."""
    return ClientRule((), (), Distribution(EMPTY), timeouts or Timeouts(), None, allows)
