"""EarlyDials: how many connections silent clients can make a proxy open, and how fast."""

from __future__ import annotations

from proxy.core import limits
from proxy.transport.detection.early import EarlyDials


class One:
    def __init__(self, dials: EarlyDials) -> None:
        self._dials = dials
        self.is_over = False

    def give_up(self) -> None:
        self.is_over = True
        self._dials.leave(self)


def test_five_thousand_silent_clients_make_a_bounded_number_of_connections() -> None:
    now = [0.0]
    dials = EarlyDials(lambda: now[0])
    ones = [One(dials) for _ in range(5000)]
    admitted = [one for one in ones if dials.admit(one)]
    assert admitted == ones[: limits.EARLY_DIALS]
    assert len(dials) == limits.EARLY_DIALS


def test_the_oldest_makes_room_once_it_has_had_its_time() -> None:
    now = [0.0]
    dials = EarlyDials(lambda: now[0])
    ones = [One(dials) for _ in range(limits.EARLY_DIALS)]
    assert all(dials.admit(one) for one in ones)
    now[0] = limits.EARLY_S / 2
    assert not dials.admit(One(dials))
    now[0] = limits.EARLY_S
    late = One(dials)
    assert dials.admit(late)
    assert [one.is_over for one in ones] == [True] + [False] * (len(ones) - 1)
    assert len(dials) == limits.EARLY_DIALS
    dials.leave(late)
    assert dials.admit(One(dials)), "whose server has spoken has left its place"
