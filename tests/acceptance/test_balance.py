"""Readiness, queue, failfast and load of a balancer, tested through the whole outbound side and by its parts."""

from __future__ import annotations

import asyncio
from math import exp
from typing import Any

import pytest

from proxy.balance.balancer import Balancer, QueueLimits
from proxy.balance.endpoints import Resolution, reset
from proxy.balance.load.ewma import PeakEwma
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.policy.endpoint import EndpointMeta
from tests.kit.network import Network, ask, balance_policy, http_server
from tests.kit.sockets import Ticking, run, until

WEB = "web.ns.svc.cluster.local:80"
DST = Addr("10.43.0.7", 80)
GET = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n"
FAILFAST_S = 0.3
"""The failfast timeout in the test kit's configuration."""


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


class Queue:
    """A service whose endpoints the test adds and removes; it begins without any."""

    def __init__(self, ticking: Ticking, **changes: str) -> None:
        self.network = Network(ticking, **changes)
        self.network.fake.policies[DST] = Watch(balance_policy())
        self._source: Watch[Resolution[EndpointMeta]] = Watch(reset({}))
        self.network.fake.names[WEB] = self._source
        self.network.start()

    def serve(self, *servers: Addr) -> None:
        self._source.set(reset(dict.fromkeys(servers, EndpointMeta())))

    async def ask(self) -> int:
        return status(await ask(self.network, DST, GET))

    async def waits(self, count: int) -> list[asyncio.Task[int]]:
        """Requests that have reached the queue."""
        tasks = [asyncio.create_task(self.ask()) for _ in range(count)]
        await until(lambda: self.length == count, f"{count} requests wait")
        return tasks

    @property
    def length(self) -> int:
        destination = self.network.outbound.discovery.get(DST)
        router: Any = destination.routers.get("http1")
        return sum(len(one._queue) for one in router._backends.values()) if router is not None else 0


@pytest.mark.acceptance("GATE-03")
def test_failfast() -> None:
    """Requests wait within the timeout and then fail; after it new ones fail at once, until an endpoint is there."""

    async def story(ticking: Ticking) -> None:
        queue = Queue(ticking)
        waiting = await queue.waits(2)
        ticking.pass_time(FAILFAST_S - 0.05)
        assert queue.length == 2
        ticking.pass_time(0.1)
        assert await asyncio.gather(*waiting) == [504, 504]
        assert await queue.ask() == 503, "not ready, and time does not pass: it was not waited for"
        queue.serve(await queue.network.server(http_server("web")))
        assert [await queue.ask() for _ in range(3)] == [200] * 3
        ticking.pass_time(10.0)
        assert await queue.ask() == 200
        queue.network.close()

    run(story)


@pytest.mark.acceptance("ODISC-04")
def test_what_stands_behind_a_destination_is_made_once() -> None:
    """What serves a destination is made once, when the first connection speaks, for all others that speak meanwhile
    and later. Whether it is ready is decided there.
    """

    async def story(ticking: Ticking) -> None:
        queue = Queue(ticking)
        fake = queue.network.fake
        assert not [question for kind, question in fake.asked if kind == "endpoints"]
        waiting = await queue.waits(3)
        queue.serve(await queue.network.server(http_server("web")))
        assert await asyncio.gather(*waiting) == [200] * 3
        assert await queue.ask() == 200
        assert [question for kind, question in fake.asked if kind == "endpoints"] == [WEB]
        queue.network.close()

    run(story)


@pytest.mark.acceptance("GATE-04")
def test_load_shed() -> None:
    """A queue that takes three requests: the one that is being dispatched, and two that wait."""

    async def story(ticking: Ticking) -> None:
        queue = Queue(ticking, OUTBOUND_HTTP_QUEUE_CAPACITY="2")
        good = await queue.network.server(http_server("web"))

        async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 500 It Broke\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        for _ in range(2):
            waiting = await queue.waits(3)
            assert [await queue.ask() for _ in range(2)] == [503, 503]
            assert not any(one.done() for one in waiting)
            queue.serve(good)
            assert await asyncio.gather(*waiting) == [200] * 3
            assert await queue.ask() == 200
            queue.serve()
        queue.serve(await queue.network.server(broken))
        assert (await ask(queue.network, DST, GET)).startswith(b"HTTP/1.1 500 It Broke\r\n")
        queue.network.close()

    run(story)


# ---- parts


class Endpoint:
    def __init__(self, addr: Addr) -> None:
        self.addr = addr
        self.load = PeakEwma(0.03, 10.0, 0.0)
        self.is_closed = False

    def start(self, readiness: Any) -> None:
        """The endpoint becomes ready when the test lets it."""

    def close(self) -> None:
        self.is_closed = True


class OneAtATime:
    """The owner of a balancer whose endpoints take one call and are then pending until they report ready again."""

    def __init__(self) -> None:
        self.resolution: Watch[Resolution[str]] = Watch(Resolution())
        self.made: list[Endpoint] = []
        self.called: list[Addr] = []
        self.balancer: Balancer[Endpoint, str, Any] = Balancer(
            self, self.resolution, self._make, Ticking().reactor, QueueLimits(10, 1.0)
        )

    def _make(self, addr: Addr, meta: str) -> Endpoint:
        self.made.append(Endpoint(addr))
        return self.made[-1]

    def dispatch_to(self, endpoint: Endpoint, waiter: str) -> None:
        self.called.append(endpoint.addr)
        self.balancer.became_pending(endpoint)

    def fail_waiter(self, waiter: str) -> None:
        raise AssertionError(f"{waiter} failed")

    def selected(self) -> Endpoint | None:
        return self.balancer.ready.pick(0.0)


@pytest.mark.acceptance("P2C-04")
def test_readiness_of_a_pool() -> None:
    pool = OneAtATime()
    one, other, third = (Addr("10.0.0.1", port) for port in (1, 2, 3))
    assert pool.selected() is None, "there is no endpoint"
    pool.resolution.set(reset({one: "", other: ""}))
    assert pool.selected() is None, "all are pending"
    pool.balancer.queue.join("first")
    pool.balancer.became_ready(pool.made[0])
    assert pool.called == [one] and pool.selected() is None
    pool.balancer.became_ready(pool.made[0])
    pool.balancer.became_ready(pool.made[1])
    picked = pool.selected()
    assert picked is not None
    pool.dispatch_to(picked, "second")
    left = pool.selected()
    assert left is not None and left is not picked
    pool.resolution.set(reset({third: ""}))
    assert left.is_closed and pool.selected() is None, "what was ready is gone, what is new is pending"
    pool.balancer.became_ready(pool.made[2])
    assert pool.selected() is pool.made[2]


@pytest.mark.acceptance("EWMA-04")
@pytest.mark.parametrize("value", [0.1, 10.0])
def test_a_zero_after_one_decay_period_leaves_its_share(value: float) -> None:
    load = PeakEwma(value, 10.0, 0.0)
    load.observe(0.0, 10.0)
    assert load.weight(10.0) == pytest.approx(value * exp(-1.0))
