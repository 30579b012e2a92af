"""For which purposes descriptors are reserved, and which connection is ended to make room."""

from __future__ import annotations

import os

from proxy.core.connection.descriptors import Descriptors
from proxy.core.connection.idle import IdleOrder


def test_the_shares_of_a_small_limit() -> None:
    descriptors = Descriptors(256)
    assert [fd for fd in range(257) if descriptors.may_accept(fd)] == list(range(224))
    assert [fd for fd in range(257) if descriptors.may_accept_admin(fd)] == list(range(248))
    assert descriptors.may_dial(239) and descriptors.may_dial(247) and not descriptors.may_dial(248)


def test_a_large_limit_keeps_no_more_than_it_needs() -> None:
    assert Descriptors(1 << 20).may_accept((1 << 20) - 1025)
    assert Descriptors(-1).may_accept(1 << 30), "no limit at all"


def test_dialling_beyond_its_share_makes_room() -> None:
    ended: list[int] = []

    def end_idle() -> bool:
        ended.append(1)
        return True

    descriptors = Descriptors(256)
    descriptors.ends_idle(end_idle)
    assert descriptors.may_dial(239) and not ended
    assert descriptors.may_dial(240) and len(ended) == 1
    assert not descriptors.may_dial(250) and len(ended) == 2


def test_the_next_number_is_asked_of_the_kernel() -> None:
    near, far = os.pipe()
    os.close(far)
    assert Descriptors(1 << 20).next_fd(near) == far
    os.close(near)


class Member:
    def __init__(self, is_idle: bool) -> None:
        self.is_idle = is_idle
        self.ended = 0

    def close(self) -> None: ...

    def end_if_idle(self) -> bool:
        self.ended += self.is_idle
        return self.is_idle


def test_the_oldest_idle_connection_goes_first() -> None:
    order = IdleOrder()
    busy, oldest, newer = Member(False), Member(True), Member(True)
    for one in (busy, oldest, newer):
        order.enter(one)
    assert order.end_oldest()
    assert (oldest.ended, newer.ended) == (1, 0)
    order.leave(oldest)
    assert order.end_oldest() and newer.ended == 1
    newer.is_idle = False
    assert not order.end_oldest()


def test_looking_for_one_is_bounded_work_and_goes_on_where_it_ended() -> None:
    order = IdleOrder()
    members = [Member(False) for _ in range(1000)] + [Member(True)]
    for one in members:
        order.enter(one)
    looks = 0
    while not order.end_oldest():
        looks += 1
    assert looks == 1001 // 64 and members[-1].ended == 1


def test_a_member_that_cannot_be_idle_is_left_alone() -> None:
    class Plain:
        def close(self) -> None: ...

    order = IdleOrder()
    order.enter(Plain())
    assert not order.end_oldest()
