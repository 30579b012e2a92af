"""Micro-benchmarks: one unit of work of each part that every request passes.

In the suite each runs once, and only its result is checked; with `--benchmark-enable` each is measured. Figures of
two runs can be compared only if they come from one machine.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.balance.beyond.least_request import LeastRequest
from proxy.balance.beyond.recovering import RecoveringEwma
from proxy.balance.beyond.tuned import TunedP2c
from proxy.balance.load.ewma import PeakEwma
from proxy.balance.load.load import ANSWERED, Load
from proxy.balance.load.penalty import PenaltyEwma
from proxy.balance.p2c import P2c
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.core.connection.in_flight import InFlight
from proxy.core.failure.reason import Reason
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange, Stage
from proxy.http.h1.client import H1Client
from proxy.http.h1.pool import H1Pool
from proxy.http.h1.server import H1Server
from proxy.http.h2.client import H2Client
from proxy.http.h2.frames import frame
from proxy.http.h2.hpack.decoder import Decoder
from proxy.http.h2.hpack.encoder import Encoder
from proxy.http.h2.server import H2Server
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import Field, field
from proxy.http.pool import Pool
from proxy.http.stream import ServerEnd
from proxy.metrics.registry import Registry
from proxy.metrics.scope import RequestScope
from proxy.outbound.http.endpoint import HttpEndpoint
from proxy.outbound.http.numbers import RouteNumbers, RouteOf
from proxy.outbound.http.retry.context import RetryContext
from proxy.outbound.http.retry.stage import RetryStage
from proxy.policy.client import (
    EMPTY,
    ClientRoute,
    ClientRule,
    ConsecutiveFailures,
    Distribution,
    FailureAccrual,
    PenaltyLoad,
    Retry,
    Timeouts,
    Unified,
)
from proxy.policy.meta import default_meta
from proxy.policy.routes.pattern import Pattern
from proxy.policy.routes.redirect import Match
from proxy.policy.routes.route import HttpMatch, PathMatch
from proxy.policy.routes.table import table_of
from tests.kit import Clock, ListWire
from tests.kit.service import Service
from tests.kit.streams import FakeServer

Measure = Callable[..., Any]

REQUEST = (
    b"GET /users/7 HTTP/1.1\r\nHost: web.default.svc.cluster.local\r\nUser-Agent: wrk/4.1\r\nAccept: */*\r\n"
    b"X-Request-Id: %s\r\n\r\n"
)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\n\r\nhello"
ACKNOWLEDGED = frame.SETTINGS_ACK


class ToPool:
    """A stage that only opens the client stream."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def dispatch(self, exchange: Exchange) -> None:
        self._pool.open(Attempt(exchange, exchange.request))


class Ids:
    """Values for a header: always the same one, or always a new one."""

    def __init__(self, varies: bool) -> None:
        self._numbers = itertools.count() if varies else itertools.repeat(7)

    def next(self) -> bytes:
        return b"%032x" % (next(self._numbers) * 7919)


VARIES = pytest.mark.parametrize("varies", [False, True], ids=["same", "varying"])


class Http1:
    """An HTTP/1 server and client codec with one stage between them, on lists."""

    def __init__(self, behind: Callable[[Http1], Stage] | None = None) -> None:
        """`behind`: another stage in front of the one that opens."""
        self.clock = Clock()
        self.wheel = Wheel(0.02, self.clock.now)
        self.pool = H1Pool(self._dial, self.wheel)
        self.opens = ToPool(self.pool)
        self.near, self.far = ListWire(), ListWire()
        self.server = H1Server(self.near, self.opens if behind is None else behind(self), self.clock, self.wheel)

    def _dial(self, pool: Pool) -> H1Client:
        self.client = H1Client(self.far, pool)
        return self.client

    def exchange(self, ids: Ids, request: bytes = REQUEST) -> bytes:
        self.server.feed(request % ids.next())
        self.far.written.clear()
        self.client.feed(ANSWER)
        return self.near.take()


@VARIES
def test_http1_exchange(benchmark: Measure, varies: bool) -> None:
    pair, ids = Http1(), Ids(varies)
    for _ in range(3):
        pair.exchange(ids)
    assert benchmark(pair.exchange, ids).endswith(b"hello")


class Counting:
    """A stage in front of the one that opens: it measures the cost of the numbers of a request's route and backend."""

    def __init__(self, pair: Http1) -> None:
        self._pool = pair.pool
        self.route = RouteNumbers(
            Registry(pair.clock), RouteOf(default_meta("a"), default_meta("b"), False), names_hosts=False
        )
        self.backend = self.route.of_backend(default_meta("c"))

    def dispatch(self, exchange: Exchange) -> None:
        self.route.begin(exchange)
        backend = self.backend
        attempt = Attempt(exchange, exchange.request)
        attempt.numbers = backend
        exchange.attempt = attempt
        exchange.response_frames = backend.frames
        backend.requests.value += 1
        self._pool.open(attempt)


def test_http1_exchange_that_is_counted_by_route(benchmark: Measure) -> None:
    made: list[Counting] = []

    def counting(pair: Http1) -> Stage:
        made.append(Counting(pair))
        return made[0]

    pair, ids = Http1(counting), Ids(False)
    for _ in range(3):
        pair.exchange(ids)
    assert benchmark(pair.exchange, ids).endswith(b"hello")
    assert made[0].backend.requests.value > 3


def _never_called(callback: Callable[[], None]) -> None:
    raise AssertionError("nothing waits for the loop")


class Retrying:
    """A rule with retries, timeouts or both, in front of the stage that opens: it measures their cost for a request
    that succeeds at once.
    """

    is_ready = True

    def __init__(self, pair: Http1, retry: Retry | None, timeouts: Timeouts) -> None:
        self._opens = pair.opens
        rule = ClientRule((), (), Distribution(EMPTY), timeouts, retry)
        reactor = Reactor(None, Flusher(_never_called), pair.wheel, pair.clock)
        runtime: Any = SimpleNamespace(registry=Registry(pair.clock), retries=RetryContext(reactor, InFlight(100)))
        self._stage = RetryStage(self, runtime, rule, RouteOf(default_meta("a"), default_meta("b"), False))

    def dispatch(self, exchange: Exchange) -> None:
        self._stage.route(exchange, exchange.request, None)

    def route(self, exchange: Exchange, head: RequestHead, match: Match) -> None:
        self._opens.dispatch(exchange)


RETRY = Retry(1, 65536, ((500, 599),), timeout_s=1.0)
TRYING = {
    "none": None,
    "retries": lambda pair: Retrying(pair, replace(RETRY, timeout_s=None), Timeouts()),
    "retries_in_time": lambda pair: Retrying(pair, RETRY, Timeouts()),
    "timeouts": lambda pair: Retrying(pair, None, Timeouts(1.0, 1.0, 1.0)),
    "all": lambda pair: Retrying(pair, RETRY, Timeouts(1.0, 1.0, 1.0)),
}


@pytest.mark.parametrize("body", [b"", b"hello"], ids=["get", "post"])
@pytest.mark.parametrize("trying", TRYING.values(), ids=TRYING)
def test_http1_exchange_of_a_route_that_may_retry(
    benchmark: Measure, trying: Callable[[Http1], Stage] | None, body: bytes
) -> None:
    pair, ids = Http1(trying), Ids(False)
    request = (
        REQUEST.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\nhello")
        if body
        else REQUEST
    )
    for _ in range(3):
        pair.exchange(ids, request)
    assert benchmark(pair.exchange, ids, request).endswith(b"hello")


def test_attempt(benchmark: Measure) -> None:
    """One attempt: its begin, its end, and all calls that its target gets."""
    told: list[int] = []

    class Target:
        def edit_response(self, attempt: Attempt, head: ResponseHead) -> ResponseHead:
            return head

        def attempt_answered(self, attempt: Attempt) -> None:
            told[0] += 1

        def attempt_ended(self, attempt: Attempt, reason: Reason) -> None:
            told[0] += 1

    target: Any = Target()
    exchange = Exchange(FakeServer(), RequestHead(b"GET", b"http", b"svc", b"/", [], 0), 0.0)

    def attempt() -> int:
        told[:] = [0]
        made = Attempt(exchange, exchange.request)
        made.target = target
        exchange.attempt = made
        made.answered()
        made.end(Reason.COMPLETE)
        return told[0]

    assert benchmark(attempt) == 2


class Http2:
    """A client codec's frames to a server codec and back: what one link between two proxies carries."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.wheel = Wheel(0.02, self.clock.now)
        self.pool = Pool(self._dial)
        self.near, self.out, self.into = ListWire(), ListWire(), ListWire()
        self.entry = H1Server(self.near, ToPool(self.pool), self.clock, self.wheel)
        self.far, self.app_wire = Http1(), ListWire()
        self.server = H2Server(self.into, ToPool(self.far.pool), self.clock, wheel=self.wheel)

    def _dial(self, pool: Pool) -> H2Client:
        self.client = H2Client(self.out, pool, wheel=self.wheel)
        return self.client

    def exchange(self, ids: Ids) -> bytes:
        self.entry.feed(REQUEST % ids.next())
        self.server.feed(self.out.take())
        self.far.far.written.clear()
        self.far.client.feed(ANSWER)
        self.client.feed(self.into.take())
        return self.near.take()


@VARIES
def test_http2_link_exchange(benchmark: Measure, varies: bool) -> None:
    link, ids = Http2(), Ids(varies)
    for _ in range(5):
        link.exchange(ids)
    assert benchmark(link.exchange, ids).endswith(b"hello")


def fields_of(value: bytes) -> tuple[Field, ...]:
    same = {b":method": b"GET", b":scheme": b"http", b":authority": b"web", b":path": b"/", b"user-agent": b"wrk/4.1"}
    return (*(field(name, text) for name, text in same.items()), field(b"x-request-id", value))


@VARIES
def test_hpack_encode(benchmark: Measure, varies: bool) -> None:
    encoder, ids = Encoder(), Ids(varies)

    def encode() -> bytes:
        return encoder.encode(fields_of(ids.next()))

    for _ in range(4):
        encode()
    assert len(benchmark(encode)) == (6 if not varies else len(encode()))


@VARIES
def test_hpack_decode(benchmark: Measure, varies: bool) -> None:
    encoder, decoder, ids = Encoder(), Decoder(), Ids(varies)
    for _ in range(4):
        decoder.decode(encoder.encode(fields_of(ids.next())))
    blocks = itertools.cycle([encoder.encode(fields_of(ids.next())) for _ in range(2000 if varies else 1)])

    def decode() -> list[Field]:
        return decoder.decode(next(blocks))

    assert [one.name for one in benchmark(decode)][-1] == b"x-request-id"


def test_hpack_decode_of_blocks_that_only_insert(benchmark: Measure) -> None:
    decoder = Decoder()
    block = b"\x88\x40\x06server\x05nginx\x40\x01a\x01b\x0f\x10\x0atext/plain"
    decoder.decode(block)
    assert len(benchmark(decoder.decode, block)) == 4


class Endpoint:
    def __init__(self) -> None:
        self.load = PeakEwma(0.03, 10.0, 0.0)


@pytest.mark.parametrize("count", [1, 2, 100, 1000])
@pytest.mark.parametrize("kind", ["p2c", "tuned"])
def test_pick(benchmark: Measure, kind: str, count: int) -> None:
    """A pick costs the same for a thousand endpoints as for two, with a slow start and probes too."""
    endpoints = [Endpoint() for _ in range(count)]
    balancer: P2c[Endpoint] = P2c(endpoints) if kind == "p2c" else TunedP2c(30.0, 0.01, endpoints)
    times = itertools.count()

    def pick() -> Endpoint | None:
        now = next(times) * 1e-4
        picked = balancer.pick(now)
        assert picked is not None
        picked.load.pending += 1
        picked.load.observe(0.001, now)
        picked.load.pending -= 1
        return picked

    assert benchmark(pick) is not None


LOADS = {
    "ewma": lambda: PeakEwma(0.03, 10.0, 0.0),
    "penalty": lambda: PenaltyEwma(0.03, 10.0, 0.0),
    "recovering": lambda: RecoveringEwma(0.03, 10.0, 0.0),
    "least-request": LeastRequest,
}


@pytest.mark.parametrize("kind", LOADS)
def test_load(benchmark: Measure, kind: str) -> None:
    """One piece of work, as a load counts it: it begins, ends, and is read."""
    load: Load = LOADS[kind]()
    times = itertools.count(1)

    def work() -> float:
        now = next(times) * 1e-4
        load.pending += 1
        load.end(0.001, now, ANSWERED)
        return load.weight(now)

    assert benchmark(work) < 1.0 and load.pending == 0


class Requests:
    """Whole requests over HTTP/1 through router, balancer and endpoint, to any of many endpoints."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, count: int, accrual: FailureAccrual | None, load: PenaltyLoad | None
    ) -> None:
        addrs = [Addr(f"10.1.{number // 250}.{number % 250}", 80) for number in range(count)]
        self._service = Service(monkeypatch, addrs, accrual, load)
        self._service.begin()
        self._backend, self._clock = self._service.backend, self._service.ticking.reactor.clock
        self._head = RequestHead(b"GET", b"http", b"web", b"/", [], 0)
        self._server: Any = Silent()
        # The first request that an endpoint gets dials; that is not what is measured.
        for _, endpoint, _ in self._backend._balancer._endpoints.values():
            for _ in range(3):
                self.request(endpoint)

    def request(self, endpoint: HttpEndpoint | None = None) -> Exchange:
        exchange = Exchange(self._server, self._head, self._clock(), self._clock)
        exchange.request_ended = True
        attempt = Attempt(exchange, self._head)
        if endpoint is None:
            assert self._backend.take(attempt)
        else:
            endpoint.dispatch(attempt)
        self._service.soon.run()
        client: Any = exchange.client
        client.feed(ANSWER)
        return exchange


@pytest.mark.parametrize("kind", ["none", "consecutive", "unified", "penalty"])
@pytest.mark.parametrize("count", [1, 1000])
def test_attempt_of_an_endpoint(benchmark: Measure, monkeypatch: pytest.MonkeyPatch, count: int, kind: str) -> None:
    """The same with everything that may judge its end. Of a thousand endpoints each request takes another one, whose
    objects are in no cache.
    """
    backoff = Backoff(1.0, 60.0, 0.0)
    accruals: dict[str, FailureAccrual] = {
        "consecutive": ConsecutiveFailures(7, backoff),
        "unified": Unified(0.8, 10.0, 5, 7, backoff),
    }
    requests = Requests(monkeypatch, count, accruals.get(kind), PenaltyLoad() if kind == "penalty" else None)
    assert benchmark(requests.request).reason is Reason.COMPLETE


def test_a_request_makes_as_many_calls_among_a_thousand_endpoints_as_among_two(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(count: int) -> int:
        requests = Requests(monkeypatch, count, None, None)
        made = 0

        def on_event(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(on_event)
        try:
            for _ in range(50):
                requests.request()
        finally:
            sys.setprofile(None)
        return made

    assert calls(1000) == calls(2) > 50


class Silent(ServerEnd):
    """A stream that accepts everything and sends nothing."""

    __slots__ = ()

    def send_head(self, head: ResponseHead, end: bool) -> None: ...

    def send_data(self, data: bytes, end: bool) -> None: ...

    def send_trailers(self, fields: list[Field]) -> None: ...

    def close_connection(self) -> None: ...

    def pause_reading(self, cause: int) -> None: ...

    def resume_reading(self, cause: int) -> None: ...

    def reset(self, reason: Reason) -> None: ...


PATHS: dict[str, Callable[[int], PathMatch]] = {
    "exact": lambda number: PathMatch(exact=f"/service-{number}/users/7"),
    "prefix": lambda number: PathMatch(prefix=f"/service-{number}"),
    "regex": lambda number: PathMatch(regex=Pattern(f"/service-{number}/users/[0-9]+")),
}


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
@pytest.mark.parametrize("kind", PATHS)
def test_route(benchmark: Measure, kind: str, count: int) -> None:
    """Finding a route costs the same among a thousand as with one."""
    rules = [ClientRule((HttpMatch(PATHS[kind](number)),), (), Distribution(EMPTY)) for number in range(count)]
    table = table_of([ClientRoute(default_meta("r"), (), (one,)) for one in rules])
    request = RequestHead(b"GET", b"http", b"web", b"/service-%d/users/7?page=2" % (count // 2), [], 0)
    found = benchmark(table.find, request)
    assert found is not None and found.route == count // 2


def test_scope(benchmark: Measure) -> None:
    scope = RequestScope()

    def count() -> int:
        scope.request()
        scope.response_began(200, 0.0042)
        scope.ended(200, True)
        return scope.requests

    assert benchmark(count) > 0
    assert scope.by_status[200].latency_sum_ms == 4 * scope.requests


def test_deadline(benchmark: Measure) -> None:
    wheel = Wheel(0.02, 0.0)

    ticks = wheel.ticks(10.0)

    def too_late() -> None:
        raise AssertionError("it was cancelled")

    def arm_and_cancel() -> None:
        wheel.arm(too_late, ticks).cancel()

    benchmark(arm_and_cancel)
    wheel.advance(20.0)
