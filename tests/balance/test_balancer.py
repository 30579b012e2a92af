"""The balancer: endpoints by resolution, readiness, the line, refusals; and the updates as values."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.balance.balancer import Balancer, LineLimits
from proxy.balance.endpoints import ABSENT, FAILED, Resolution, add, remove, reset
from proxy.balance.ewma import PeakEwma
from proxy.core.addr import Addr
from proxy.core.flusher import Flusher
from proxy.core.reactor import Reactor
from proxy.core.timers import Wheel
from proxy.core.watch import Watch

A, B, C = (Addr("10.0.0.1", port) for port in (1, 2, 3))


class Endpoint:
    def __init__(self, addr: Addr, meta: str, is_ready: bool) -> None:
        self.addr = addr
        self.meta = meta
        self.load = PeakEwma(0.03, 10.0, 0.0)
        self.is_closed = False
        self._is_ready = is_ready
        self.readiness: Any = None

    def start(self, readiness: Any) -> None:
        self.readiness = readiness
        if self._is_ready:
            readiness.became_ready(self)

    def close(self) -> None:
        self.is_closed = True


class Story:
    def __init__(self, are_ready: bool = True) -> None:
        self.now = 0.0
        self.wheel = Wheel(0.01, 0.0)
        self.made: list[Endpoint] = []
        self.dispatched: list[tuple[Addr, str]] = []
        self.failed: list[str] = []
        self.is_cancelled = False
        self.resolution: Watch[Resolution[str]] = Watch(Resolution(), self._cancel)
        self._are_ready = are_ready
        reactor = Reactor(None, Flusher(lambda flush: flush()), self.wheel, lambda: self.now)
        self.balancer: Balancer[Endpoint, str, Any] = Balancer(
            self, self.resolution, self._make, reactor, LineLimits(10, 1.0)
        )

    def _cancel(self) -> None:
        self.is_cancelled = True

    def _make(self, addr: Addr, meta: str) -> Endpoint:
        self.made.append(Endpoint(addr, meta, self._are_ready))
        return self.made[-1]

    def dispatch_to(self, endpoint: Endpoint, waiter: str) -> None:
        self.dispatched.append((endpoint.addr, waiter))

    def fail_waiter(self, waiter: str) -> None:
        self.failed.append(waiter)

    def living(self) -> set[tuple[Addr, str]]:
        return {(one.addr, one.meta) for one in self.made if not one.is_closed}


def test_updates_are_values() -> None:
    unknown: Resolution[str] = Resolution()
    assert remove(unknown, [A]) is unknown, "as first message it is ignored"
    one = reset({A: "a"})
    two = add(one, {B: "b", A: "a2"})
    assert two.endpoints == {A: "a2", B: "b"} and one.endpoints == {A: "a"}
    assert remove(two, [C]) is two
    assert remove(two, [A, C]).endpoints == {B: "b"}


def test_equal_metadata_keeps_the_endpoint_and_its_load() -> None:
    story = Story()
    story.resolution.set(reset({A: "a", B: "b"}))
    first = story.made[0]
    first.load.observe(5.0, 0.0)
    story.resolution.set(reset({A: "a", B: "changed", C: "c"}))
    assert story.living() == {(A, "a"), (B, "changed"), (C, "c")}
    assert [one.meta for one in story.made] == ["a", "b", "changed", "c"] and not first.is_closed
    story.resolution.set(remove(story.resolution.value, [A, C]))
    assert story.living() == {(B, "changed")} and first.is_closed
    assert story.balancer.ready.pick(0.0) is story.made[2]
    story.resolution.set(Resolution(ABSENT))
    assert story.living() == set() and story.balancer.ready.pick(0.0) is None


@pytest.mark.acceptance("QUEUE-03")
def test_updates_apply_while_one_waits_and_while_idle() -> None:
    story = Story()
    story.balancer.waiting.join("waits")
    story.resolution.set(reset({A: "a"}))
    assert story.dispatched == [(A, "waits")]
    story.resolution.set(reset({B: "b"}))
    assert story.living() == {(B, "b")}
    picked = story.balancer.ready.pick(0.0)
    assert picked is not None and picked.addr == B


def test_only_ready_endpoints_are_picked() -> None:
    story = Story(are_ready=False)
    story.resolution.set(reset({A: "a", B: "b"}))
    assert story.balancer.ready.pick(0.0) is None and story.balancer.is_ready
    one, other = story.made
    story.balancer.became_ready(other)
    assert all(story.balancer.ready.pick(0.0) is other for _ in range(10))
    story.balancer.became_ready(one)
    story.balancer.became_pending(other)
    assert all(story.balancer.ready.pick(0.0) is one for _ in range(10))


def test_a_refused_resolution_fails_those_who_wait_and_all_who_come() -> None:
    story = Story()
    story.balancer.waiting.join("waits")
    story.resolution.set(Resolution(FAILED, {}, "no permission"))
    assert story.failed == ["waits"] and story.balancer.error == "no permission"
    assert story.balancer.is_ready, "it says itself that it failed"


@pytest.mark.acceptance("QUEUE-07")
def test_closing_cancels_the_question_and_closes_the_endpoints() -> None:
    story = Story(are_ready=False)
    story.resolution.set(reset({A: "a"}))
    story.balancer.waiting.join("waits")
    story.balancer.close()
    assert story.is_cancelled and story.living() == set() and story.failed == ["waits"]
