"""Budget: how many octets this process may remember of what has passed through it, in all tables together.

Everything that is remembered here can be found again: heads, fields, names,
blocks. A table has a bound of its own, so that a flood of one kind of text
empties that table and no other; what connections remember is bounded by the
budget as a whole, and whoever began to hold something longest ago forgets
first. Accounts are kept when something is remembered, never when it is
found, so that a lookup stays one lookup in a dict. Sizes are those of the
objects as CPython allocates them, as near as an estimate comes.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

from proxy.core import limits

K = TypeVar("K")
V = TypeVar("V")


class Forgets(Protocol):
    def forget(self) -> None:
        """Drop what is remembered, or at least its older half, and settle it with the share."""


class Budget:
    """What all shares hold together. `by_table` is for the metrics: octets by the name of the table."""

    __slots__ = ("limit_bytes", "held_bytes", "by_table", "_holders")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes: Final = limit_bytes
        self.held_bytes = 0
        self.by_table: Final[dict[str, int]] = {}
        self._holders: dict[Share, None] = {}
        """Those that hold anything, in the order in which they began to."""

    def note(self, share: Share, change_bytes: int) -> None:
        """Of a share, whose own account is settled already."""
        self.held_bytes += change_bytes
        self.by_table[share.table] += change_bytes
        if not share.held_bytes:
            self._holders.pop(share, None)
            return
        self._holders[share] = None
        if self.held_bytes > self.limit_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """Let the oldest holders forget; each is asked once, so that one that cannot does not keep us here."""
        for share in list(self._holders):
            self._holders.pop(share, None)
            share.forget()
            if share.held_bytes:
                self._holders[share] = None
            if self.held_bytes <= self.limit_bytes:
                return


class Share:
    """What one holder has of the budget; several may stand under one table's name."""

    __slots__ = ("table", "held_bytes", "_budget", "_holder")

    def __init__(self, budget: Budget, table: str, holder: Forgets) -> None:
        self.table: Final = table
        self.held_bytes = 0
        self._budget: Final = budget
        self._holder: Forgets = holder
        budget.by_table.setdefault(table, 0)

    def add(self, count: int) -> None:
        """`count` octets more are held. May call the holder's `forget`, so it is said last."""
        # What `note` does, written out: this is met whenever something is remembered, and rarely has more to do.
        held_bytes = self.held_bytes = self.held_bytes + count
        budget = self._budget
        budget.by_table[self.table] += count
        all_bytes = budget.held_bytes = budget.held_bytes + count
        if held_bytes == count or all_bytes > budget.limit_bytes:
            budget.note(self, 0)

    def give_back(self, count: int) -> None:
        if count:
            self.held_bytes -= count
            self._budget.note(self, -count)

    def forget(self) -> None:
        """Of the budget: there is no room for all."""
        self._holder.forget()

    def close(self) -> None:
        """The holder is gone, and all that it held."""
        self.give_back(self.held_bytes)
        self._holder = _NOBODY


class _Nobody:
    """The holder of a closed share: a holder and its share would otherwise keep each other alive."""

    __slots__ = ()

    def forget(self) -> None: ...


_NOBODY: Final = _Nobody()

REMEMBERED: Final = Budget(limits.REMEMBERED_BYTES)
"""The one of this process."""

LABELS: Final = Budget(limits.LABELS_BYTES)
"""Series of the metrics: those that are held cannot be forgotten, and so must not crowd out what can."""


_LONGEST: Final = limits.REMEMBERED_TEXT_BYTES
_AHEAD: Final = 16
"""So many entries, at most, are paid for before they are kept."""


class Table(Generic[K, V]):
    """Values found by a text of a peer's, in two generations, so that a flood of texts that are met once cannot empty it
    of those that everybody uses.

    `recent.get(key)` is the lookup of the hot path. What it does not have `older.get(key)` may, and whoever finds it there
    keeps it again: both dicts live as long as the table, so that their `get` can be held on to.
    """

    __slots__ = (
        "recent", "older", "_recent_bytes", "_paid_bytes", "_older_bytes", "_generation_bytes", "_entry_bytes", "_copies",
        "_share",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        max_bytes: int,
        entry_bytes: int,
        copies: int,
        budget: Budget = REMEMBERED,
    ) -> None:
        """An entry counts `entry_bytes`, and each octet of its text `copies` times: its key, its value, and what is made of it."""
        self.recent: Final[dict[K, V]] = {}
        self.older: Final[dict[K, V]] = {}
        self._recent_bytes = 0
        self._paid_bytes = 0
        """What the share has been told of the recent generation: some entries ahead, which makes an entry cheaper."""
        self._older_bytes = 0
        self._generation_bytes: Final = max_bytes // 2
        self._entry_bytes: Final = entry_bytes
        self._copies: Final = copies
        self._share: Final = Share(budget, name, self)

    def find(self, key: K, text_bytes: int) -> V | None:
        """What was kept for this key, but not lately, and now is again; for where a call more does not matter."""
        found = self.older.get(key)
        if found is not None:
            self.keep(key, found, text_bytes)
        return found

    def keep(self, key: K, value: V, text_bytes: int) -> None:
        """Remember it, unless its text is too long for that."""
        if text_bytes > _LONGEST:
            return
        cost = self._entry_bytes + self._copies * text_bytes
        recent_bytes = self._recent_bytes + cost
        if recent_bytes > self._paid_bytes:
            recent_bytes = self._pay(cost)
        self.recent[key] = value
        self._recent_bytes = recent_bytes

    def _pay(self, cost: int) -> int:
        """Make room for an entry of this cost, in a new generation if need be; the octets of its generation with it."""
        if self._recent_bytes + cost > self._generation_bytes or len(self.recent) > limits.INTERNED_FIELDS - _AHEAD:
            self.forget()
        needed = self._recent_bytes + cost
        ahead = max(needed, min(needed + _AHEAD * self._entry_bytes, self._generation_bytes)) - self._paid_bytes
        self._paid_bytes += ahead
        self._share.add(ahead)  # which may make us forget
        return self._recent_bytes + cost

    def forget(self) -> None:
        """A new generation begins; what was in neither of the last two is gone."""
        gone_bytes = self._older_bytes + self._paid_bytes - self._recent_bytes
        self.older.clear()
        self.older.update(self.recent)
        self._older_bytes = self._recent_bytes
        self.recent.clear()
        self._recent_bytes = self._paid_bytes = 0
        self._share.give_back(gone_bytes)

    def clear(self) -> None:
        self.forget()
        self.forget()

    def __len__(self) -> int:
        return len(self.recent) + len(self.older)
