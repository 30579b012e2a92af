"""Drain: which connections are asked to end, and when all have ended."""

from __future__ import annotations

from proxy.core.connection.drain import Drain


class Member:
    def __init__(self, drain: Drain, ends_at_once: bool = False) -> None:
        self.closes = 0
        self._drain = drain
        self._ends_at_once = ends_at_once
        drain.enter(self)

    def ask_to_leave(self) -> None: ...

    def close(self) -> None:
        self.closes += 1
        if self._ends_at_once:
            self._drain.leave(self)


def test_each_is_asked_and_the_last_to_leave_is_told_of_once() -> None:
    drain = Drain()
    idle, busy = Member(drain, ends_at_once=True), Member(drain)
    empty: list[bool] = []
    drain.begin(lambda: empty.append(True))
    assert (idle.closes, busy.closes, empty, len(drain)) == (1, 1, [], 1)
    drain.leave(busy)
    drain.leave(busy)
    assert empty == [True]


def test_who_enters_later_is_asked_at_once_and_waited_for() -> None:
    drain = Drain()
    first = Member(drain)
    empty: list[bool] = []
    drain.begin(lambda: empty.append(True))
    late = Member(drain)
    drain.leave(first)
    assert (late.closes, empty) == (1, [])
    drain.leave(late)
    assert empty == [True]


def test_nobody_to_wait_for() -> None:
    empty: list[bool] = []
    Drain().begin(lambda: empty.append(True))
    assert empty == [True]
