"""An update of ten thousand endpoints: from the message to the balancer, no turn of the loop is long and no endpoint
is lost.
"""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.api import destination_pb2
from proxy.balance.balancer import Balancer, QueueLimits
from proxy.balance.endpoints import Resolution
from proxy.balance.load.ewma import PeakEwma
from proxy.control.convert.endpoint import endpoint_of
from proxy.control.destination import Destinations, EndpointSet, ProfileStream
from proxy.control.rpc.subscription import StreamSettings
from proxy.control.stale import Stale
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.core.loop.step_queue import StepQueue
from proxy.http import grpc
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.profiles.profile import Profile
from tests.hostile.stopwatch import Stopwatch
from tests.kit.sockets import Ticking, run, until

COUNT = 10_000


def update(first: int, count: int) -> destination_pb2.Update:
    message = destination_pb2.Update()
    for number in range(first, first + count):
        one = message.add.addrs.add(weight=1)
        one.addr.ip.ipv4 = 0x0A000000 + number
        one.addr.port = 8080
        one.metric_labels.update({"pod": f"web-{number}", "zone_locality": "local"})
        one.tls_identity.dns_like_identity.name = "web.ns.serviceaccount.identity.linkerd.cluster.local"
        one.protocol_hint.h2.SetInParent()
    return message


def removal(first: int, count: int) -> destination_pb2.Update:
    message = destination_pb2.Update()
    for number in range(first, first + count):
        one = message.remove.addrs.add(port=8080)
        one.ip.ipv4 = 0x0A000000 + number
    return message


class Asked:
    """A channel whose stream the test writes to."""

    def __init__(self, steps: StepQueue) -> None:
        self.reactor: Any = SimpleNamespace(steps=steps, loop=None)
        self.cancelled = False
        self.is_paused = False
        self.stale = Stale("the controller", self.clock)
        self.retrying: dict[Any, None] = {}
        self.is_away = False

    def clock(self) -> float:
        return 0.0

    def watch(self, *_: Any) -> Asked:
        return self

    def cancel(self) -> None:
        self.cancelled = True

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False


class One:
    def __init__(self, addr: Addr) -> None:
        self.addr = addr
        self.load = PeakEwma(0.03, 10.0, 0.0)
        self.is_closed = False

    def start(self, readiness: Any) -> None:
        readiness.became_ready(self)

    def close(self) -> None:
        self.is_closed = True


class Nobody:
    def dispatch_to(self, endpoint: Any, waiter: Any) -> None: ...

    def fail_waiter(self, waiter: Any) -> None: ...


def endpoint_set(steps: StepQueue) -> EndpointSet:
    channel: Any = Asked(steps)
    return EndpointSet(Destinations(channel, StreamSettings(Backoff(1.0, 2.0, 0.0)), ""), "web:80")


def test_ten_thousand_endpoints_in_one_message() -> None:
    async def story(ticking: Ticking) -> None:
        loop = asyncio.get_running_loop()
        found = endpoint_set(ticking.reactor.steps)
        made: list[One] = []

        def make(addr: Addr, meta: EndpointMeta) -> One:
            made.append(One(addr))
            return made[-1]

        resolution: Any = found.watch
        balancer: Balancer[One, EndpointMeta, Any] = Balancer(
            Nobody(), resolution, make, ticking.reactor, QueueLimits(10, 1.0)
        )
        data = update(0, COUNT).SerializeToString()
        watch = Stopwatch(loop)
        gc.collect()
        gc.disable()
        watch.start()
        found.receive(destination_pb2.Update.FromString(data), True)
        found.receive(removal(0, 5000), False)
        found.receive(update(0, 10), False)
        assert found.watch.value == Resolution(), "the first has only begun to be read"
        await until(lambda: len(balancer) == COUNT - 4990 and len(balancer.ready) == COUNT - 4990)
        await until(lambda: sum(one.is_closed for one in made) == len(made) - (COUNT - 4990))
        watch.stop()
        gc.enable()
        assert watch.longest_ms < 100.0, f"{watch.longest_ms:.0f} ms"
        balancer.close()
        await until(lambda: all(one.is_closed for one in made))

    run(story)


def test_what_one_turn_does_of_an_update() -> None:
    called: list[Any] = []

    class Loop:
        def call_soon(self, callback: Any) -> None:
            called.append(callback)

    found = endpoint_set(StepQueue(Loop(), lambda: 0.0))
    found.receive(update(0, limits.TURN_ENDPOINTS), True)
    assert len(found.watch.value.endpoints) == limits.TURN_ENDPOINTS, "what is small is applied at once"
    found.receive(update(0, 3 * limits.TURN_ENDPOINTS), False)
    found.receive(removal(0, 1), False)
    assert len(found.watch.value.endpoints) == limits.TURN_ENDPOINTS and len(called) == 1
    while called:
        called.pop()()
    assert len(found.watch.value.endpoints) == 3 * limits.TURN_ENDPOINTS - 1


def test_thousands_of_small_updates_are_applied_together_and_hold_back_their_stream() -> None:
    """Each that is applied by itself copies the set of endpoints."""
    called: list[Any] = []

    class Loop:
        def call_soon(self, callback: Any) -> None:
            called.append(callback)

    channel: Any = Asked(StepQueue(Loop(), lambda: 0.0))
    found = EndpointSet(Destinations(channel, StreamSettings(Backoff(1.0, 2.0, 0.0)), ""), "web:80")
    sets: list[int] = []
    found.watch.subscribe(lambda now: sets.append(len(now.endpoints)))
    found.receive(update(0, 10), True)
    for number in range(2000):
        found.receive(removal(number - 1, 1) if number % 3 == 2 else update(100 + number, 1), False)
    assert len(sets) == limits.TURN_MESSAGES and channel.is_paused, "each would be a set of its own"
    turns = 0
    while called:
        called.pop()()
        turns += 1
    assert len(sets) <= limits.TURN_MESSAGES + 2000 // limits.TURN_ENDPOINTS + 1
    assert turns >= 2000 // limits.TURN_ENDPOINTS // limits.TURN_STEPS and not channel.is_paused
    expected = set(range(10))
    for number in range(2000):
        if number % 3 == 2:
            expected.discard(number - 1)
        else:
            expected.add(100 + number)
    assert {addr.ip for addr in found.watch.value.endpoints} == {f"10.0.{one >> 8}.{one & 255}" for one in expected}
    found.receive(update(3000, 1), False)
    assert len(found.watch.value.endpoints) == len(expected) + 1, "alone it is applied at once again"


def test_an_update_that_cannot_be_read_for_a_fault_of_ours_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    """It must neither stay before all others nor be left out, since the next build upon it."""
    called: list[Any] = []
    later: list[Any] = []

    class Loop:
        def call_soon(self, callback: Any) -> None:
            called.append(callback)

        def call_later(self, _after_s: float, callback: Any) -> Any:
            later.append(callback)
            return SimpleNamespace(cancel=lambda: None)

    channel: Any = Asked(StepQueue(Loop(), lambda: 0.0))
    channel.reactor.loop = Loop()
    found = EndpointSet(Destinations(channel, StreamSettings(Backoff(1.0, 2.0, 0.0)), ""), "web:80")
    found.receive(update(0, 2), True)

    class Broken:
        def WhichOneof(self, _: str) -> str:
            raise RuntimeError("a fault of ours")

    broken: Any = Broken()
    found.receive(broken, False)
    assert "a fault of ours" in caplog.text and channel.cancelled and later
    later.pop()()
    found.receive(update(5, 1), True)
    while called:
        called.pop()()
    assert [addr.ip for addr in found.watch.value.endpoints] == ["10.0.0.5"]


def test_a_stream_that_is_closed_reads_no_further() -> None:
    called: list[Any] = []

    class Loop:
        def call_soon(self, callback: Any) -> None:
            called.append(callback)

    found = endpoint_set(StepQueue(Loop(), lambda: 0.0))
    found.receive(update(0, 1000), True)
    found.watch.close()
    while called:
        called.pop()()
    assert not found.watch.value.endpoints


def test_a_message_of_megabytes_in_small_pieces() -> None:
    data = update(0, COUNT).SerializeToString()
    deframer = grpc.Deframer()
    whole = grpc.frame(data) + grpc.frame(b"next")
    got = [message for start in range(0, len(whole), 1000) for message in deframer.feed(whole[start : start + 1000])]
    assert got == [data, b"next"] and deframer.is_between_messages
    first, meta = endpoint_of(destination_pb2.Update.FromString(got[0]).add.addrs[0], {})
    assert first.port == 8080 and meta.zone_locality == "local"


# ---- profiles


def profile(count: int, name: str = "web.ns.svc.cluster.local") -> destination_pb2.DestinationProfile:
    message = destination_pb2.DestinationProfile(fully_qualified_name=name)
    for number in range(count):
        route = message.routes.add()
        route.condition.path.regex = rf"/api/kind{number}/[^/]+/items/\d+"
        route.response_classes.add(is_failure=True).condition.status.CopyFrom(
            destination_pb2.HttpStatusRange(min=500, max=599)
        )
    return message


def profile_stream() -> tuple[ProfileStream, list[Any]]:
    """A stream of profiles, and the list of turns that it asks for, which the test takes."""
    called: list[Any] = []

    class Loop:
        def call_soon(self, callback: Any) -> None:
            called.append(callback)

    channel: Any = Asked(StepQueue(Loop(), lambda: 0.0))
    return ProfileStream(Destinations(channel, StreamSettings(Backoff(1.0, 2.0, 0.0)), ""), "10.0.0.1:80"), called


def test_a_profile_of_two_thousand_routes_is_read_in_turns() -> None:
    stream, called = profile_stream()
    few = limits.TURN_PARTS // 4
    stream.receive(profile(few), True)
    assert isinstance(stream.watch.value, Profile), "what is small is applied at once"
    stream.receive(profile(2000), False)
    turns = 0
    while called:
        assert isinstance(stream.watch.value, Profile) and len(stream.watch.value.routes) == few
        called.pop()()
        turns += 1
    assert isinstance(stream.watch.value, Profile) and len(stream.watch.value.routes) == 2000
    assert turns >= 2000 // limits.TURN_PARTS // limits.TURN_STEPS


def test_a_profile_whose_one_route_has_thousands_of_parts_is_read_in_turns() -> None:
    stream, called = profile_stream()
    message = profile(1)
    conditions = message.routes[0].condition.any.matches
    for number in range(1000):
        conditions.add().path.regex = f"/api/kind{number}/[^/]+"
    classes = message.routes[0].response_classes[0].condition.any.matches
    for number in range(1000):
        classes.add().status.CopyFrom(destination_pb2.HttpStatusRange(min=500, max=500 + number % 100))
    stream.receive(message, True)
    turns = 0
    while called:
        assert stream.watch.value is None
        called.pop()()
        turns += 1
    assert isinstance(stream.watch.value, Profile) and turns >= 2000 // limits.TURN_PARTS // limits.TURN_STEPS


def test_of_profiles_that_come_faster_than_they_are_read_the_first_and_the_last_count() -> None:
    stream, called = profile_stream()
    seen: list[str] = []
    stream.watch.subscribe(lambda value: seen.append(value.name if isinstance(value, Profile) else ""))
    for number in range(50):
        stream.receive(profile(limits.TURN_PARTS, f"web{number}.ns"), number == 0)
    while called:
        called.pop()()
    assert seen == ["web0.ns:80", "web49.ns:80"]
    stream.receive(profile(limits.TURN_PARTS, "never.ns"), False)
    stream.watch.close()
    while called:
        called.pop()()
    assert len(seen) == 2


def test_what_a_profile_has_to_do_without_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    stream, _ = profile_stream()
    message = profile(2)
    for number in range(6):
        message.routes.add().condition.path.regex = f"({number}"
    for _ in range(3):
        stream.receive(message, False)
    message.routes.pop()
    stream.receive(message, False)
    lines = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(lines) == 2
    assert lines[0].startswith(
        "profile of web.ns.svc.cluster.local:80: left out: route 2: path: invalid regular expression"
    )
    assert lines[0].endswith("and 2 more")
