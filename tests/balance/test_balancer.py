"""The balancer: endpoints that follow the resolution, readiness, the queue, refusals; and resolutions as values."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.balance.balancer import Balancer, QueueLimits
from proxy.balance.endpoints import ABSENT, FAILED, Resolution, add, remove, reset
from proxy.balance.load.ewma import PeakEwma
from proxy.core.address.addr import Addr
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel
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
            self, self.resolution, self._make, reactor, QueueLimits(10, 1.0)
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
    story.balancer.queue.join("waits")
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
    story.balancer.queue.join("waits")
    story.resolution.set(Resolution(FAILED, {}, "no permission"))
    assert story.failed == ["waits"] and story.balancer.error == "no permission"
    assert story.balancer.is_ready, "it says itself that it failed"


@pytest.mark.acceptance("QUEUE-06")
def test_an_endpoint_that_fails_takes_nothing_along(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Linkerd's pool fails for good with the first endpoint whose readiness fails. In ours only the resolution can
    fail for good; an endpoint that cannot begin, or end, is not ready, and the others serve.
    """

    class Failing(Endpoint):
        def start(self, readiness: Any) -> None:
            raise OSError("no room")

        def close(self) -> None:
            raise OSError("nor for this")

    story = Story()
    make = story._make
    monkeypatch.setattr(
        story.balancer, "_make", lambda addr, meta: Failing(addr, meta, True) if addr == A else make(addr, meta)
    )
    story.balancer.queue.join("waits")
    story.resolution.set(reset({A: "a", B: "b", C: "c"}))
    assert story.dispatched and story.dispatched[0][1] == "waits" and "no room" in caplog.text
    assert story.living() == {(B, "b"), (C, "c")} and not story.balancer.error
    story.resolution.set(reset({C: "c"}))
    assert story.living() == {(C, "c")} and "nor for this" in caplog.text
    picked = story.balancer.ready.pick(0.0)
    assert picked is not None and picked.addr == C, "a request after the failure is served"
    story.resolution.set(Resolution(FAILED, {}, "no permission"))
    assert story.balancer.error and not story.balancer.queue.is_ready, "after this one none is"


@pytest.mark.acceptance("QUEUE-07")
def test_closing_cancels_the_question_and_closes_the_endpoints() -> None:
    story = Story(are_ready=False)
    story.resolution.set(reset({A: "a"}))
    story.balancer.queue.join("waits")
    story.balancer.close()
    assert story.is_cancelled and story.living() == set() and story.failed == ["waits"]


@pytest.mark.acceptance("P2C-02")
def test_updates_by_what_they_said() -> None:
    """Updates change sizes, metadata and counts according to their kind; one that changes nothing is not counted."""
    story = Story()
    now: Resolution[str] = Resolution()
    sizes = []
    said: list[tuple[str, Any]] = [
        ("reset", {A: "a"}),
        ("reset", {A: "a"}),
        ("reset", {A: "changed"}),
        ("add", {B: "b"}),
        ("add", {B: "b"}),
        ("reset", {B: "b"}),
        ("remove", [A]),
        ("add", {A: "a"}),
        ("remove", [B]),
        ("reset", {C: "c"}),
        ("reset", {}),
        ("reset", {}),
    ]
    for op, what in said:
        now = reset(what) if op == "reset" else add(now, what) if op == "add" else remove(now, what)
        story.resolution.set(now)
        sizes.append(len(story.balancer))
        assert story.balancer.sizes() == (0, sizes[-1], sizes[-1])
        assert story.living() == set(now.endpoints.items()), "metadata that differs makes an endpoint anew"
    assert sizes == [1, 1, 1, 2, 2, 1, 1, 2, 1, 1, 0, 0]
    counts = story.balancer.counts
    assert (counts.resets, counts.adds, counts.removes) == (5, 2, 1)


def test_the_first_resolution_is_a_reset_whatever_made_it() -> None:
    first = Story()
    first.resolution.set(reset({A: "a"}))
    first.resolution.set(add(first.resolution.value, {B: "b"}))
    reactor = Reactor(None, Flusher(lambda flush: flush()), first.wheel, lambda: first.now)
    second: Balancer[Endpoint, str, Any] = Balancer(first, first.resolution, first._make, reactor, QueueLimits(10, 1.0))
    assert (second.counts.resets, second.counts.adds) == (1, 0)


def test_a_visit_reaches_every_endpoint_in_turns_and_none_that_comes_later() -> None:
    class Soon:
        def __init__(self) -> None:
            self.asked: list[Any] = []

        def call_soon(self, callback: Any, *args: Any) -> None:
            self.asked.append((callback, args))

        def run(self) -> int:
            turns = 0
            while self.asked:
                callback, args = self.asked.pop(0)
                callback(*args)
                turns += 1
            return turns

    soon, story = Soon(), Story()
    many = {Addr("10.0.0.1", port): "" for port in range(1, 1001)}
    reactor = Reactor(soon, Flusher(lambda flush: flush()), story.wheel, lambda: story.now)
    balancer: Balancer[Endpoint, str, Any] = Balancer(
        story, Watch(reset(many)), story._make, reactor, QueueLimits(10, 1.0)
    )
    soon.run()
    seen: list[Addr] = []
    balancer.visit(lambda endpoint: seen.append(endpoint.addr))
    assert 0 < len(seen) < 1000, "no turn does all of it"
    assert soon.run() > 1 and sorted(seen) == sorted(many)
