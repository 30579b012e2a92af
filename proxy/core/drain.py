"""Drain: everything that must end before the process may.

Law: whatever accepts or carries work enters here when it begins and leaves
when it is over. `begin` asks each, and each that still enters, to close
gracefully; when the last has left, `on_empty` is called once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Closes(Protocol):
    def close(self) -> None:
        """Finish what runs, take nothing new."""


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
