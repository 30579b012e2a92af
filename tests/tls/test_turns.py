"""The line of handshakes: a few per loop iteration, in order, whoever asks."""

from __future__ import annotations

import asyncio
from typing import Any

from proxy.tls.turns import STEPS_PER_TURN, Turns, turns_of
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


def test_a_few_per_iteration_in_order() -> None:
    async def story(ticking: Ticking) -> None:
        loop = asyncio.get_running_loop()
        turns = turns_of(loop)
        assert turns_of(loop) is turns
        done: list[int] = []
        for number in range(10):
            turns.ask(loop, Step(number, done))
        assert done == []
        seen = []
        while len(done) < 10:
            await asyncio.sleep(0)
            seen.append(len(done))
        assert done == list(range(10)) and STEPS_PER_TURN == 4
        assert [after for before, after in zip([0, *seen], seen, strict=False) if after != before] == [4, 8, 10]

    run(story)


def test_who_asks_within_a_step_waits_for_its_turn() -> None:
    called: list[Any] = []

    class Loop:
        def call_soon(self, callback: Any, *arguments: Any) -> None:
            called.append((callback, arguments))

    loop, turns, done = Loop(), Turns(), list[int]()
    turns.ask(loop, Step(1, done, lambda: turns.ask(loop, Step(2, done))))
    while called:
        assert len(called) == 1
        callback, arguments = called.pop()
        callback(*arguments)
    assert done == [1, 2]
