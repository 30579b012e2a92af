"""Requests at a steady rate to four endpoints, in virtual time over the real Balancer: nothing here waits, or measures
a machine.

Three endpoints answer after 5, 50 and 500 ms, give or take a fifth. The fourth answers after 5 ms, but during
`hang` it does not answer; the requests that it has then are answered when it is back, unless the client has given
up. The dice have a seed, so two runs are the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, NamedTuple

from proxy.balance.balancer import Balancer, QueueLimits
from proxy.balance.endpoints import Resolution, reset
from proxy.balance.gate import Gate
from proxy.balance.load.load import ANSWERED, GIVEN_UP, Load
from proxy.balance.picker import Picker
from proxy.core.address.addr import Addr
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel
from proxy.core.watch import Watch
from proxy.outbound.backend.loads import Balancing
from proxy.policy.client import LeastRequestLoad, PeakEwmaLoad

LATENCIES_S: Final = (0.005, 0.05, 0.5, 0.005)
HANGS: Final = 3
"""The position of the endpoint that hangs."""
NAMES: Final = ("5 ms", "50 ms", "500 ms", "hangs")
PATIENCE_S: Final = 10.0
"""The time after which a client gives up."""
SEED: Final = 20261201


class Scene(NamedTuple):
    rate: float
    """Requests per second."""
    duration_s: float = 240.0
    hang: tuple[float, float] = (60.0, 90.0)
    """From when to when the fourth endpoint answers nothing."""
    window_s: float = 5.0
    """The width of a window; shares are those of the requests that were sent within one."""


class Outcome(NamedTuple):
    shares: list[list[float]]
    """By window and endpoint. They add up to 1, or to 0 if nothing was sent."""
    latencies_s: list[tuple[float, float]]
    """When each request was sent, and how long its client waited."""

    def p99_s(self, begin_s: float = 0.0, end_s: float = float("inf")) -> float:
        """The 99th percentile of the latencies of requests that were sent within this time."""
        found = sorted(waited for sent_at, waited in self.latencies_s if begin_s <= sent_at < end_s)
        return found[min(int(len(found) * 0.99), len(found) - 1)] if found else 0.0


class Endpoint:
    """A simulated endpoint, as a Balancer uses it."""

    def __init__(self, place: int, load: Load) -> None:
        self.place: Final = place
        self.load: Final = load

    def start(self, gate: Gate[Endpoint]) -> None:
        gate.became_ready(self)

    def close(self) -> None:
        """There is nothing to close."""


class RoundRobin:
    """A Picker that takes endpoints in turn, for comparison."""

    def __init__(self) -> None:
        self._endpoints: list[Endpoint] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._endpoints)

    def add(self, endpoint: Endpoint) -> None:
        self._endpoints.append(endpoint)

    def remove(self, endpoint: Endpoint) -> None:
        self._endpoints.remove(endpoint)

    def pick(self, now: float) -> Endpoint | None:
        self._next += 1
        return self._endpoints[self._next % len(self._endpoints)] if self._endpoints else None

    def pick_except(self, endpoint: Endpoint, now: float) -> Endpoint | None:
        raise AssertionError("nothing is tried again")


class Policy(NamedTuple):
    name: str
    balancing: Balancing
    make_picker: Callable[[], Picker[Any]]


def _of(name: str, balancing: Balancing) -> Policy:
    return Policy(name, balancing, balancing.picker)


POLICIES: Final = (
    _of("peak EWMA (Linkerd's)", Balancing(PeakEwmaLoad())),
    _of("peak EWMA with 1 % of probes", Balancing(PeakEwmaLoad(), probe_share=0.01)),
    _of("least request", Balancing(LeastRequestLoad())),
    Policy("round robin", Balancing(PeakEwmaLoad()), RoundRobin),
)


class Simulation:
    """One policy in one scene."""

    def __init__(self, policy: Policy, scene: Scene) -> None:
        self._policy = policy
        self._scene = scene
        self._now = 0.0
        self._dice = random.Random(SEED)
        reactor = Reactor(None, Flusher(lambda flush: flush()), Wheel(0.02, 0.0), lambda: self._now)
        places = {Addr("10.0.0.1", place + 1): place for place in range(len(LATENCIES_S))}
        resolution: Watch[Resolution[int]] = Watch(reset(places))
        self._balancer: Balancer[Endpoint, int, Any] = Balancer(
            self, resolution, self._make, reactor, QueueLimits(10_000, 3.0), policy.make_picker()
        )
        self._order = count()
        self._due: list[tuple[float, int, Endpoint, float, int]] = []
        """Ends of requests: when, their order among equal times, the endpoint, when the request began, and how it
        ended.
        """
        windows = int(scene.duration_s / scene.window_s)
        self._sent = [[0] * len(LATENCIES_S) for _ in range(windows)]
        self._waited: list[tuple[float, float]] = []

    def _make(self, addr: Addr, place: int) -> Endpoint:
        return Endpoint(place, self._policy.balancing.load_of_endpoint(self._now))

    def run(self) -> Outcome:
        state = random.getstate()
        random.seed(SEED)  # the pickers' dice
        try:
            for number in range(int(self._scene.rate * self._scene.duration_s)):
                self._end_until(number / self._scene.rate)
                self._send()
            self._end_until(float("inf"))
        finally:
            random.setstate(state)
        shares = [[one / max(sum(window), 1) for one in window] for window in self._sent]
        return Outcome(shares, self._waited)

    def _send(self) -> None:
        now = self._now
        endpoint = self._balancer.ready.pick(now)
        assert endpoint is not None, "all of them are always ready"
        endpoint.load.pending += 1
        self._sent[int(now / self._scene.window_s)][endpoint.place] += 1
        takes_s = LATENCIES_S[endpoint.place] * self._dice.uniform(0.8, 1.2)
        begin_s, end_s = self._scene.hang
        if endpoint.place == HANGS and begin_s <= now < end_s:
            takes_s += end_s - now
        outcome = ANSWERED if takes_s < PATIENCE_S else GIVEN_UP
        heappush(self._due, (now + min(takes_s, PATIENCE_S), next(self._order), endpoint, now, outcome))

    def _end_until(self, now: float) -> None:
        due = self._due
        while due and due[0][0] <= now:
            ended_at, _, endpoint, begun_at, outcome = heappop(due)
            self._now = ended_at
            endpoint.load.end(ended_at - begun_at, ended_at, outcome)
            self._waited.append((begun_at, ended_at - begun_at))
        self._now = now

    # ---- Served, of a balancer whose queue is not used

    def dispatch_to(self, endpoint: Endpoint, waiter: object) -> None:
        raise AssertionError("nobody waits")

    def fail_waiter(self, waiter: object) -> None:
        raise AssertionError("nobody waits")


def recovered_after_s(outcome: Outcome, scene: Scene, share: float) -> float | None:
    """How long after its hang the fourth endpoint again had this share of a window's requests; None if it never had."""
    end_s = scene.hang[1]
    for number, shares in enumerate(outcome.shares):
        ended_at = (number + 1) * scene.window_s
        if number * scene.window_s >= end_s and shares[HANGS] >= share:
            return ended_at - end_s
    return None


def run_all(rates: Sequence[float], scene: Scene) -> dict[float, dict[str, Outcome]]:
    return {
        rate: {policy.name: Simulation(policy, scene._replace(rate=rate)).run() for policy in POLICIES}
        for rate in rates
    }
