"""Flow control in any order: the work that a peer can cause is bounded by what it sends, and by what gets through for it.

Answers, or requests of ours, wait on many streams; the peer moves windows as the input chooses, by as little and as
often as it likes. Work is counted in DATA frames that leave, not in time.
"""

from __future__ import annotations

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http.h2.frames import frame
from tests.fuzz.choices import SEEDS, Choices, decisions
from tests.fuzz.target import Target
from tests.http.h2.kit import GET, Client, Frame, Server, bare

_TIMES = (300, 1, 2500, 10)
_SIZES = (10_000, 1, 100_000, 100)
_STREAMS = (300, 20, 300, 1)
_STEPS = (1, 1, 2, 100, 70_000)


def run_windows(data: bytes) -> None:
    choices = Choices(data)
    peer: Client | Server = Server() if choices.number(2) else Client()
    count, size = choices.of(_STREAMS), choices.of(_SIZES)
    peer.send(frame.settings([(4, 0), (3, 1000)]))
    hold(peer, count, size)
    sent = 0
    got: list[Frame] = []
    window = 0
    for _ in range(1 + choices.number(6)):
        kind, step = choices.number(4), choices.of(_STEPS)
        for turn in range(choices.of(_TIMES)):
            if peer.wire.aborted is not None:
                break
            if kind == 0:
                window = min(window + step, 2**31 - 1 - 2**20)
                piece = frame.settings([(4, window)])
            elif kind == 1:
                piece = frame.settings([(4, window + turn % 2)])
            else:
                piece = frame.window_update(0 if kind == 2 else 1 + 2 * (turn % count), step)
            sent += 1
            got += peer.send(piece)
    frames = [len(one.payload) for one in got if one.kind == frame.DATA]
    bound = limits.CONTROL_FRAMES + 2 * count + 2 * sent + sum(frames) // 100
    assert len(frames) <= bound, f"{sent} frames made us send {len(frames)}, of {sum(frames)} octets"
    assert peer.wire.aborted in (None, Reason.CONTROL_FLOOD, Reason.FLOW_CONTROL, Reason.RESET_FLOOD)


def hold(peer: Client | Server, count: int, size: int) -> None:
    """This many streams, on each of which this many octets wait."""
    for number in range(count):
        if isinstance(peer, Server):
            peer.request(b"POST", False).exchange.request_data(bytes(size), True)
        else:
            peer.head(1 + 2 * number, GET)
            exchange = peer.stage.exchanges[-1]
            exchange.response_head(bare(), False)
            exchange.response_data(bytes(size), True)
    peer.take()


TARGETS = (Target("windows", run_windows, (), SEEDS, shape=decisions, runs=60),)
