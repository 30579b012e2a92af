"""Turn: when the connections that were read in one iteration of the loop have had enough of it together."""

from __future__ import annotations

from collections.abc import Callable

from proxy.core import limits
from proxy.core.codec import Wire
from proxy.core.loop.effort import spent
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.turn import Turn
from tests.kit import Clock


class Loop:
    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def run(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class Story:
    def __init__(self) -> None:
        self.clock, self.loop = Clock(), Loop()
        self.flusher = Flusher(self.loop.call_soon)
        self.turn = Turn(self.loop, self.flusher, self.clock)

    def reads(self, count: int, each_s: float) -> list[bool]:
        """Whether each of so many reads, which take so long, may not be done in this turn."""
        answers = []
        for _ in range(count):
            is_over = self.flusher.reads_left <= 0 and self.turn.is_over()
            if not is_over:
                self.flusher.reads_left -= 1
            answers.append(is_over)
            self.clock.now += each_s
        return answers


def test_short_reads_are_all_of_one_turn() -> None:
    story = Story()
    assert not any(story.reads(500, limits.TURN_READS_S / 1000))


def test_reads_that_take_long_end_the_turn_within_four() -> None:
    """The clock is looked at before every fourth read."""
    story = Story()
    assert story.reads(10, limits.TURN_READS_S * 1.1) == [False] * 4 + [True] * 6


def test_a_read_that_cost_much_for_expressions_has_the_next_one_look_at_the_clock() -> None:
    story = Story()

    def read() -> bool:
        flusher = story.flusher
        return (flusher.reads_left <= 0 or spent.s > flusher.enough_s) and story.turn.is_over()

    assert not read()
    story.clock.now += limits.TURN_READS_S * 2
    assert not read(), "it is one of four that need not ask"
    spent.s += limits.TURN_MATCH_S * 1.1
    assert read()


def test_three_of_four_reads_do_not_look_at_the_clock() -> None:
    story = Story()
    looks = 0

    def look() -> float:
        nonlocal looks
        looks += 1
        return 0.0

    story.turn = Turn(story.loop, story.flusher, look)
    story.reads(100, 0.0)
    assert looks == 25


def test_a_flush_ends_the_turn() -> None:
    story = Story()
    story.reads(5, limits.TURN_READS_S)
    assert story.turn.is_over()
    story.flusher.mark(Wire())
    story.loop.soon.pop()()  # the flush, without the turn's own callback
    assert not story.turn.is_over()


def test_a_turn_in_which_nothing_is_written_ends_too() -> None:
    """Else a connection that waits for the next turn could wait for ever."""
    story = Story()
    story.reads(5, limits.TURN_READS_S)
    assert story.turn.is_over()
    story.loop.run()
    assert not story.turn.is_over()


def test_reads_of_many_turns_without_output_do_not_add_up_for_long() -> None:
    """Turns in which nothing is written are taken for one; its end is announced at once."""
    story = Story()
    for _ in range(40):
        story.turn.is_over()
        story.clock.now += 1.0
        story.loop.run()
    assert sum(story.reads(40, 0.0)) == 0
