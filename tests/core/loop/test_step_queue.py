"""The step queue: a few steps per loop iteration, in order, whoever asks for them, and never for long."""

from __future__ import annotations

import asyncio
from typing import Any

from proxy.core import limits
from proxy.core.loop.step_queue import StepQueue
from tests.kit import Clock
from tests.kit.sockets import Ticking, run


class Step:
    def __init__(self, number: int, done: list[int], asks: Any = None) -> None:
        self.number = number
        self.done = done
        self.asks = asks

    def step(self) -> None:
        self.done.append(self.number)
        if self.asks is not None:
            self.asks()


class Loop:
    """Keeps the calls that were scheduled."""

    def __init__(self) -> None:
        self.called: list[Any] = []

    def call_soon(self, callback: Any) -> None:
        self.called.append(callback)

    def iterate(self) -> None:
        called, self.called = self.called, []
        for callback in called:
            callback()


def test_a_few_per_iteration_in_order() -> None:
    async def story(ticking: Ticking) -> None:
        steps = ticking.reactor.steps
        done: list[int] = []
        for number in range(10):
            steps.add(Step(number, done))
        assert done == []
        seen = []
        while len(done) < 10:
            await asyncio.sleep(0)
            seen.append(len(done))
        assert done == list(range(10)) and limits.TURN_STEPS == 4
        assert [after for before, after in zip([0, *seen], seen, strict=False) if after != before] == [4, 8, 10]

    run(story)


def test_who_asks_within_a_step_waits_for_its_turn() -> None:
    loop, done = Loop(), list[int]()
    steps = StepQueue(loop, Clock())
    steps.add(Step(1, done, lambda: steps.add(Step(2, done))))
    while loop.called:
        assert len(loop.called) == 1
        loop.iterate()
    assert done == [1, 2]


def test_dear_steps_leave_the_iteration_to_the_others() -> None:
    loop, done, clock = Loop(), list[int](), Clock()
    steps = StepQueue(loop, clock)

    def dear() -> None:
        clock.now += limits.TURN_STEPS_S

    for number in range(3):
        steps.add(Step(number, done, dear))
    seen = []
    while loop.called:
        loop.iterate()
        seen.append(len(done))
    assert seen == [1, 2, 3]


def test_one_that_breaks_keeps_nobody_from_its_turn() -> None:
    loop, done = Loop(), list[int]()
    steps = StepQueue(loop, Clock())

    def broken() -> None:
        raise RuntimeError("on purpose")

    steps.add(Step(1, done, broken))
    steps.add(Step(2, done))
    loop.iterate()
    assert done == [1, 2] and not loop.called
