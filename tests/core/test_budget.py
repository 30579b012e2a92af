"""What is remembered is bounded in octets, table by table and all together."""

from __future__ import annotations

from proxy.core import limits
from proxy.core.budget import Budget, Seen, Share, Table


def table(budget: Budget, max_bytes: int = 10_000) -> Table[bytes, int]:
    return Table("a", max_bytes, 100, 1, budget)


def test_a_table_holds_no_more_octets_than_it_may() -> None:
    budget = Budget(1 << 20)
    made = table(budget)
    for number in range(1000):
        made.keep(b"%0300d" % number, number, 300)
        assert budget.held_bytes == budget.by_table["a"] <= 10_000
    assert made.find(b"%0300d" % 999, 300) is None, "in the recent generation, where the caller looked first"
    assert made.recent[b"%0300d" % 999] == 999
    made.clear()
    assert (len(made), budget.held_bytes) == (0, 0)


def test_what_is_used_outlives_a_flood() -> None:
    made = table(Budget(1 << 20))
    made.keep(b"used", 1, 4)
    for number in range(1000):
        made.keep(b"%0300d" % number, number, 300)
        assert made.recent.get(b"used") or made.find(b"used", 4)


def test_a_long_text_is_not_remembered() -> None:
    made = table(Budget(1 << 20), 1 << 20)
    made.keep(b"x" * limits.REMEMBERED_TEXT_BYTES, 1, limits.REMEMBERED_TEXT_BYTES)
    made.keep(b"y" * (limits.REMEMBERED_TEXT_BYTES + 1), 2, limits.REMEMBERED_TEXT_BYTES + 1)
    assert list(made.recent.values()) == [1]


def test_many_small_texts_are_bounded_in_number() -> None:
    made = table(Budget(1 << 30), 1 << 30)
    for number in range(10_000):
        made.keep(b"%d" % number, number, 5)
    assert len(made) <= 2 * limits.INTERNED_FIELDS


class Holder:
    def __init__(self, budget: Budget) -> None:
        self.share = Share(budget, "connections", self)

    def forget(self) -> None:
        self.share.give_back(self.share.held_bytes)


def test_holders_of_one_budget_forget_in_the_order_in_which_they_began() -> None:
    budget = Budget(1000)
    holders = [Holder(budget) for _ in range(5)]
    for one in holders:
        one.share.add(250)
    assert [one.share.held_bytes for one in holders] == [0, 250, 250, 250, 250]
    holders[0].share.add(100)
    assert [one.share.held_bytes for one in holders] == [100, 0, 250, 250, 250]
    for one in holders:
        one.share.close()
    assert budget.held_bytes == 0 and budget.by_table == {"connections": 0}


def test_one_that_does_not_forget_keeps_nobody_waiting() -> None:
    class Stubborn(Holder):
        def forget(self) -> None:
            pass

    budget = Budget(1000)
    stubborn, other = Stubborn(budget), Holder(budget)
    stubborn.share.add(2000)
    other.share.add(10)
    assert (stubborn.share.held_bytes, other.share.held_bytes) == (2000, 0)


def test_a_text_has_come_before_from_its_second_time_on() -> None:
    seen = Seen()
    assert [seen.again(b"x-request-id: 1") for _ in range(3)] == [False, True, True]
    assert not seen.again(b"x-request-id: 2")


def test_a_flood_of_texts_that_come_once_makes_others_new_again_and_takes_no_memory() -> None:
    seen = Seen()
    assert not any(seen.again(b"%d" % number) for number in range(100_000))
    assert not seen.again(b"0")
    assert seen.again(b"99999")
