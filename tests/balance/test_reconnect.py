"""When the connection of an endpoint is made again."""

from __future__ import annotations

import pytest

from proxy.balance.reconnect import Reconnect
from proxy.core.backoff import Backoff
from proxy.core.loop.timers import Wheel

TICK_S = 0.01


class Peer:
    """Counts the attempts to connect to it; the test decides whether they succeed."""

    def __init__(self, backoff: Backoff) -> None:
        self.now = 0.0
        self.wheel = Wheel(TICK_S, 0.0)
        self.attempted_at: list[float] = []
        self.reconnect = Reconnect(self.wheel, backoff, lambda: self.attempted_at.append(round(self.now, 2)))

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now += TICK_S
            self.wheel.advance(self.now)


@pytest.mark.acceptance("RECON-02")
def test_steps_grow_with_failures_and_begin_anew_after_a_success() -> None:
    peer = Peer(Backoff(1.0, 10.0, 0.0))
    peer.reconnect.start()
    assert peer.attempted_at == [0.0]
    peer.reconnect.lost()
    peer.reconnect.lost()
    peer.pass_time(0.99)
    assert peer.attempted_at == [0.0]
    peer.pass_time(0.1)
    assert len(peer.attempted_at) == 2 and peer.attempted_at[1] == pytest.approx(1.0, abs=0.03)
    peer.reconnect.lost()
    peer.pass_time(1.9)
    assert len(peer.attempted_at) == 2
    peer.pass_time(0.2)
    assert len(peer.attempted_at) == 3
    peer.reconnect.succeeded()
    peer.pass_time(20.0)
    assert len(peer.attempted_at) == 3
    peer.reconnect.lost()
    peer.pass_time(1.1)
    assert len(peer.attempted_at) == 4


def test_a_stopped_one_never_connects_again() -> None:
    peer = Peer(Backoff(1.0, 10.0, 0.0))
    peer.reconnect.start()
    peer.reconnect.lost()
    peer.reconnect.stop()
    peer.reconnect.lost()
    peer.pass_time(30.0)
    assert len(peer.attempted_at) == 1
