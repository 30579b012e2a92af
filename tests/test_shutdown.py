"""Shutdown: in which order the sides end, on a wheel that the test advances."""

from __future__ import annotations

from proxy.core.connection.drain import Drain
from proxy.core.connection.idle import IdleOrder
from proxy.core.loop.timers import Wheel
from proxy.shutdown import Shutdown, Side


class Member:
    """A connection that ends when it is closed while idle."""

    def __init__(self, drain: Drain, is_idle: bool = False) -> None:
        self.heard: list[str] = []
        self.is_idle = is_idle
        self._drain = drain
        drain.enter(self)

    def ask_to_leave(self) -> None:
        self.heard.append("leave")

    def close(self) -> None:
        self.heard.append("close")
        if self.is_idle:
            self.end()

    def end(self) -> None:
        self._drain.leave(self)


class Scene:
    def __init__(self) -> None:
        self.now = 100.0
        self.wheel = Wheel(0.01, self.now)
        self.drains = [Drain() for _ in range(3)]
        self.shutdown = Shutdown(*(Side(self.wheel, (), drain) for drain in self.drains))
        self.ended: list[float] = []

    def begin(self, accept_s: float = 0.0) -> None:
        self.shutdown.begin(accept_s, lambda: self.ended.append(self.now))

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.01)):
            self.now += 0.01
            self.wheel.advance(self.now)

    @property
    def draining(self) -> list[bool]:
        return [drain.is_draining for drain in self.drains]


def test_nothing_to_wait_for() -> None:
    scene = Scene()
    scene.begin()
    assert scene.ended == [100.0] and scene.draining == [True] * 3


def test_each_side_waits_for_the_one_before() -> None:
    scene = Scene()
    inbound, outbound, admin = (Member(drain) for drain in scene.drains)
    scene.begin()
    scene.pass_time(1)
    assert scene.draining == [True, False, False] and inbound.heard[0] == "leave" and not outbound.heard
    inbound.end()
    assert outbound.heard == ["leave"], "it has time to say something before it counts as idle"
    scene.pass_time(1)
    assert scene.draining == [True, True, False] and "close" in outbound.heard and not admin.heard
    outbound.end()
    scene.pass_time(1)
    assert not scene.ended
    admin.end()
    assert len(scene.ended) == 1
    scene.pass_time(1)
    assert len(scene.ended) == 1


def test_what_becomes_idle_later_ends_then() -> None:
    scene = Scene()
    busy = Member(scene.drains[0])
    scene.begin()
    scene.pass_time(5)
    assert not scene.ended
    busy.is_idle = True
    scene.pass_time(0.5)
    assert scene.ended


def test_while_it_accepts_clients_are_asked_to_leave_and_nobody_is_closed() -> None:
    scene = Scene()
    scene.begin(accept_s=3.0)
    scene.pass_time(1)
    late = Member(scene.drains[0], is_idle=True)
    assert scene.drains[0].is_leaving, "whoever makes its codec asks it to leave"
    scene.pass_time(1)
    assert late.heard and set(late.heard) == {"leave"} and not scene.ended
    scene.pass_time(2)
    assert late.heard[-1] == "close" and scene.ended


def test_it_can_be_stopped_at_any_time() -> None:
    scene = Scene()
    busy = Member(scene.drains[0])
    scene.begin()
    scene.shutdown.stop()
    scene.pass_time(1)
    assert busy.heard == ["leave"] and not scene.ended


def test_the_order_of_the_idle_is_that_of_all_sides() -> None:
    order = IdleOrder()
    first, second = Drain(order), Drain(order)
    ended: list[str] = []

    class Idle(Member):
        def __init__(self, name: str, drain: Drain) -> None:
            super().__init__(drain)
            self._name = name

        def end_if_idle(self) -> bool:
            ended.append(self._name)
            self.end()
            return True

    for name, drain in (("a", first), ("b", second), ("c", first)):
        Idle(name, drain)
    while order.end_oldest():
        pass
    assert ended == ["a", "b", "c"] and not len(first) and not len(second)
