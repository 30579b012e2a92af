"""Drain: everything that must end before the process may.

Whatever accepts or carries work enters here when it begins and leaves
when it is over. `begin` asks each, and each that still enters, to close
gracefully; when the last has left, `on_empty` is called once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from proxy.core.codec import CLOSED, Codec, Connection
from proxy.core.faults import Faults
from proxy.core.reason import Reason


class Closes(Protocol):
    def close(self) -> None:
        """Finish what runs, take nothing new."""


_LOOKS: Final = 64
"""Members that are looked at for one that is idle: those that were not are not looked at again before the others."""


class Drain:
    __slots__ = ("_members", "is_draining", "_on_empty")

    def __init__(self) -> None:
        self._members: dict[Closes, None] = {}
        self.is_draining = False
        self._on_empty: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._members)

    def enter(self, member: Closes) -> None:
        self._members[member] = None
        if self.is_draining:
            member.close()

    def leave(self, member: Closes) -> None:
        self._members.pop(member, None)
        self._tell_if_empty()

    def end_oldest_idle(self) -> bool:
        """Of those that entered or were last found at work longest ago; False if none was idle.

        A member that can tell has `end_if_idle() -> bool`: it ends now if nothing is under way, and says False if something is,
        or if it is ending already. (No Protocol is asked: compiled ones cannot be checked at run time.)
        """
        for _ in range(min(_LOOKS, len(self._members))):
            member = next(iter(self._members))
            del self._members[member]
            self._members[member] = None
            end_if_idle: Any = getattr(member, "end_if_idle", None)
            if end_if_idle is not None and end_if_idle():
                return True
        return False

    def begin(self, on_empty: Callable[[], None]) -> None:
        self.is_draining = True
        self._on_empty = on_empty
        for member in list(self._members):
            member.close()
        self._tell_if_empty()

    def _tell_if_empty(self) -> None:
        on_empty = self._on_empty
        if on_empty is not None and not self._members:
            self._on_empty = None
            on_empty()


def end_if_idle(connection: Connection, faults: Faults) -> bool:
    """Of an accepted connection: whatever is not understood yet counts as idle, a tunnel never does.

    A codec that can tell has `is_idle() -> bool`: nothing is under way, no whole request, no tunnel, no answer that is being made.
    """
    codec: Codec | None = connection.codec
    if codec is CLOSED:
        return False
    if codec is not None:
        is_idle: Any = getattr(codec, "is_idle", None)
        if is_idle is None or not is_idle():
            return False
    faults.count_as("idle_ended")
    if codec is not None:
        codec.close()
        connection.hand_over(CLOSED)
        codec.lost(Reason.SHUTDOWN)
    connection.abort(Reason.SHUTDOWN)
    return True
