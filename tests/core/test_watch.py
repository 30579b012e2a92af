"""Watch: which subscribers are called with which values, and that none is called after it has unsubscribed."""

from __future__ import annotations

from proxy.core.watch import Absent, Watch


def test_changes_are_told_in_order_of_subscription_and_the_value_at_hand_is_not() -> None:
    watch: Watch[int] = Watch(1)
    told: list[tuple[str, int]] = []
    watch.subscribe(lambda value: told.append(("first", value)))
    watch.subscribe(lambda value: told.append(("second", value)))
    assert told == []
    watch.set(2)
    assert told == [("first", 2), ("second", 2)]
    assert watch.value == 2


def test_an_equal_value_is_no_change() -> None:
    watch: Watch[list[int]] = Watch([1])
    told: list[list[int]] = []
    watch.subscribe(told.append)
    watch.set([1])
    assert told == []


def test_who_is_unsubscribed_by_another_in_the_same_change_is_not_told() -> None:
    watch: Watch[int] = Watch(0)
    told: list[int] = []
    watch.subscribe(lambda value: watch.unsubscribe(told.append))
    watch.subscribe(told.append)
    watch.set(1)
    assert told == []
    watch.unsubscribe(told.append)  # once more: nothing to do


def test_closing_cancels_the_source_once_and_tells_nobody() -> None:
    closed: list[bool] = []
    told: list[int] = []
    watch: Watch[int] = Watch(0, lambda: closed.append(True))
    watch.subscribe(told.append)
    watch.close()
    watch.close()
    watch.set(1)
    assert (closed, told, watch.is_closed) == ([True], [], True)


def test_absences_are_equal_by_what_was_said() -> None:
    assert Absent("no such service") == Absent("no such service")
    assert Absent("no such service") != Absent("no such service", is_refusal=True)
    assert len({Absent("a"), Absent("a"), Absent("b")}) == 2
