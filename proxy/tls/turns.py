"""Taking turns: how many handshakes may hold the loop before everyone else comes again.

Law: a step of a handshake costs up to 1.5 ms of this thread (signing,
verifying), and a thousand clients may be ready in one wake-up. At most
STEPS_PER_TURN are done per loop iteration, in order of arrival, so that open
connections wait a few milliseconds and not a second.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from proxy.core.errors import report_fault

STEPS_PER_TURN: Final = 4


class Steps(Protocol):
    def step(self) -> None: ...


class Turns:
    """The line of one loop; it does not hold the loop, which holds it."""

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: deque[Steps] = deque()

    def ask(self, loop: Any, handshake: Steps) -> None:
        """`handshake.step` soon, once; never within this call."""
        if not self._line:
            loop.call_soon(self._turn, loop)
        self._line.append(handshake)

    def _turn(self, loop: Any) -> None:
        for _ in range(min(STEPS_PER_TURN, len(self._line))):
            # It stays in line during its step: whoever asks meanwhile must not start a second turn.
            try:
                self._line[0].step()
            except Exception:
                report_fault()
            self._line.popleft()
        if self._line:
            loop.call_soon(self._turn, loop)


_of_loops: Final[WeakKeyDictionary[Any, Turns]] = WeakKeyDictionary()


def turns_of(loop: Any) -> Turns:
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Turns()
    return found
