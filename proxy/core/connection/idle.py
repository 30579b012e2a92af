"""IdleOrder: every accepted connection of the process, in the order in which they are asked whether they are idle.

When descriptors are short, the connection that has been idle for longest is ended, whichever side accepted it
(core/connection/descriptors.py).
"""

from __future__ import annotations

from typing import Any, Final

from proxy.core.codec import CLOSED, Connection
from proxy.core.failure.faults import Faults
from proxy.core.failure.reason import Reason

_LOOKS: Final = 64
"""How many members are looked at to find an idle one. Those that were busy go to the back of the order."""


class IdleOrder:
    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: dict[object, None] = {}

    def enter(self, member: object) -> None:
        self._members[member] = None

    def leave(self, member: object) -> None:
        self._members.pop(member, None)

    def end_oldest(self) -> bool:
        """End one of the idle members that entered, or were last found busy, longest ago; False if none was idle.

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


def end_if_idle(connection: Connection, faults: Faults) -> bool:
    """End an accepted connection if it is idle. One whose first bytes are not understood yet counts as idle; a tunnel never
    does."""
    codec = connection.codec
    if not codec.is_idle():
        return False
    faults.count_as("idle_ended")
    codec.close()
    connection.hand_over(CLOSED)
    codec.lost(Reason.SHUTDOWN)
    connection.abort(Reason.SHUTDOWN)
    return True
