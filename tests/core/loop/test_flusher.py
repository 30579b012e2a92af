"""Flusher: one flush per loop iteration, and a fault of one connection does not hold back the output of others."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from proxy.core.codec import Wire
from proxy.core.loop.flusher import Flusher


class Connection(Wire):
    def __init__(self, on_flush: Callable[[], None] = lambda: None) -> None:
        self.flushed = 0
        self._on_flush = on_flush

    def flush(self) -> None:
        self.flushed += 1
        self._on_flush()


def fails() -> None:
    raise RuntimeError("a broken flush")


def test_all_that_is_marked_leaves_in_one_callback() -> None:
    soon: list[Callable[[], None]] = []
    flusher = Flusher(soon.append)
    first, second = Connection(), Connection()
    flusher.mark(first)
    flusher.mark(second)
    assert (len(soon), first.flushed) == (1, 0)
    soon.pop()()
    assert (first.flushed, second.flushed, soon) == (1, 1, [])


def test_who_is_marked_while_others_are_flushed_has_the_next_turn() -> None:
    soon: list[Callable[[], None]] = []
    flusher = Flusher(soon.append)
    late = Connection()
    flusher.mark(Connection(lambda: flusher.mark(late)))
    soon.pop()()
    assert (late.flushed, len(soon)) == (0, 1)
    soon.pop()()
    assert late.flushed == 1


def test_a_broken_flush_is_logged_and_keeps_nobodys_output(caplog: pytest.LogCaptureFixture) -> None:
    soon: list[Callable[[], None]] = []
    flusher = Flusher(soon.append)
    whole = Connection()
    flusher.mark(Connection(fails))
    flusher.mark(whole)
    with caplog.at_level(logging.ERROR):
        soon.pop()()
    assert whole.flushed == 1
    assert "a broken flush" in caplog.text
