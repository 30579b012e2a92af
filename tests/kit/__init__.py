"""What the tests are built on: a Wire that is a list, a fake server that answers, and two codecs joined without a
socket.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

from proxy.core.codec import Codec, Wire
from proxy.core.failure.reason import Reason
from proxy.core.loop.step_queue import Steps
from proxy.http.ending.linger import Linger


class ListWire(Wire):
    """A Wire on a list. When it aborts, its codec's `lost` is called, as a connection would.

    A turn that was asked for comes when a test looks at what was written (`take`), or calls `give_turns`.
    """

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.codec: Codec | None = None
        self.is_paused = False
        self.has_ended = False
        self.aborted: Reason | None = None
        self.looks_stale = False
        self.waiting: list[Steps] = []
        """What asked for a turn, in the order of asking."""
        self.turns = 0
        """How many turns were given."""

    def write(self, data: bytes) -> None:
        assert not self.has_ended, "written after the end"
        self.written.append(data)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def end(self) -> None:
        self.has_ended = True

    def abort(self, reason: Reason) -> None:
        if self.aborted is None:
            self.aborted = reason

    def is_stale(self) -> bool:
        return self.looks_stale

    def schedule(self, target: Steps) -> None:
        self.waiting.append(target)

    def give_turns(self) -> None:
        while self.waiting:
            self.turns += 1
            self.waiting.pop(0).step()

    def hand_over(self, codec: Codec) -> None:
        """Once a codec waits only for its peer's end, a wire with a fault counts as aborted with that reason."""
        self.codec = codec
        if isinstance(codec, Linger) and codec.reason is not Reason.COMPLETE:
            self.aborted = codec.reason

    @property
    def is_over(self) -> bool:
        """Nothing more can be written."""
        return self.aborted is not None or self.has_ended

    def mark(self) -> str:
        """How the recordings write the state in which a connection was left."""
        return "<RST>" if self.aborted is Reason.CONNECTION_RESET else "<FIN>" if self.is_over else "<OPEN>"

    def take(self) -> bytes:
        self.give_turns()
        data = b"".join(self.written)
        self.written.clear()
        return data


_MADE_DATE = re.compile(rb"\r\ndate: [^\r]* GMT(?=\r\n)")


def undated(data: bytes) -> bytes:
    """Without the `date` that the proxy adds to responses which have none."""
    return _MADE_DATE.sub(b"", data)


def splits(data: bytes) -> Iterator[list[bytes]]:
    """The same bytes whole, one by one, and cut at random places."""
    yield [data]
    yield [data[index : index + 1] for index in range(len(data))]
    dice = random.Random(7)
    for _ in range(20):
        cuts = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(dice.randrange(1, 9)))})
        yield [data[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shuttle(*pairs: tuple[ListWire, Callable[[bytes], None]]) -> None:
    """Carry what each wire wrote to where it goes, until nothing moves."""
    moved = True
    while moved:
        moved = False
        for wire, deliver in pairs:
            data = wire.take()
            if data:
                moved = True
                deliver(data)
