"""Drain: the connections of one side, which must end before the process may.

A connection enters when it is accepted and leaves when it is over. A side ends in two steps (proxy/shutdown.py):
after `ask_to_leave` it still serves, and lets its clients know that they should go elsewhere; after `begin` it takes
nothing new, and when the last connection has left, `on_empty` is called once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from proxy.core.connection.idle import IdleOrder


class Closes(Protocol):
    def close(self) -> None:
        """Finish what runs, take nothing new."""


class Member(Closes, Protocol):
    """One accepted connection. While a drain runs it is closed again and again, so that one that was busy ends once idle."""

    def ask_to_leave(self) -> None:
        """Keep serving, but let the client know that it should go elsewhere."""


class Drain:
    __slots__ = ("_members", "_order", "is_leaving", "is_draining", "_on_empty")

    def __init__(self, order: IdleOrder | None = None) -> None:
        """The members are put into `order` as well, which all sides share."""
        self._members: dict[Member, None] = {}
        self._order = order
        self.is_leaving = False
        """Once set, the code that makes a codec for a connection asks it to leave at once."""
        self.is_draining = False
        self._on_empty: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._members)

    def enter(self, member: Member) -> None:
        self._members[member] = None
        if self._order is not None:
            self._order.enter(member)
        if self.is_draining:
            member.close()

    def leave(self, member: Member) -> None:
        self._members.pop(member, None)
        if self._order is not None:
            self._order.leave(member)
        self._tell_if_empty()

    def ask_to_leave(self) -> None:
        self.is_leaving = True
        for member in list(self._members):
            member.ask_to_leave()

    def begin(self, on_empty: Callable[[], None]) -> None:
        self.is_leaving = True
        self.is_draining = True
        self._on_empty = on_empty
        self.look_again()
        self._tell_if_empty()

    def look_again(self) -> None:
        """Close what has become idle since the last look."""
        for member in list(self._members):
            member.close()

    def _tell_if_empty(self) -> None:
        on_empty = self._on_empty
        if on_empty is not None and not self._members:
            self._on_empty = None
            on_empty()
