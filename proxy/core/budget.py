"""Budget: how many octets this process may remember of what has passed through it, in all tables together.

Everything that is remembered here can be found again: heads, fields, names,
blocks. A table has a bound of its own, so that a flood of one kind of text
empties that table and no other; what connections remember is bounded by the
budget as a whole, and the holder that began to hold something longest ago
forgets first. Octets are counted when something is remembered, never when it
is found, so that a lookup stays one lookup in a dict. Sizes estimate what
CPython allocates for the objects.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

from proxy.core import limits

K = TypeVar("K")
V = TypeVar("V")


class Forgets(Protocol):
    def forget(self) -> None:
        """Drop what is remembered, or at least its older half, and return its octets to the share."""


class Budget:
    """The octets that all shares hold together. `by_table` has them by the name of the table, for the metrics."""

    __slots__ = ("limit_bytes", "held_bytes", "by_table", "_holders")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes: Final = limit_bytes
        self.held_bytes = 0
        self.by_table: Final[dict[str, int]] = {}
        self._holders: dict[Share, None] = {}
        """The shares that hold anything, in the order in which they began to."""

    def note(self, share: Share, change_bytes: int) -> None:
        """Called by a share that has counted the change itself already."""
        self.held_bytes += change_bytes
        self.by_table[share.table] += change_bytes
        if not share.held_bytes:
            self._holders.pop(share, None)
            return
        self._holders[share] = None
        if self.held_bytes > self.limit_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """Let the oldest holders forget. Each is asked once, so that one that cannot forget does not keep us in the loop."""
        for share in list(self._holders):
            self._holders.pop(share, None)
            share.forget()
            if share.held_bytes:
                self._holders[share] = None
            if self.held_bytes <= self.limit_bytes:
                return


class Share:
    """One holder's part of the budget; several shares may have the same table name."""

    __slots__ = ("table", "held_bytes", "_budget", "_holder")

    def __init__(self, budget: Budget, table: str, holder: Forgets) -> None:
        self.table: Final = table
        self.held_bytes = 0
        self._budget: Final = budget
        self._holder: Forgets = holder
        budget.by_table.setdefault(table, 0)

    def add(self, count: int) -> None:
        """`count` more octets are held. This may call the holder's `forget`, so call it after everything else."""
        # This is `note` written out, because it runs whenever something is remembered and rarely has more to do.
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
        """Called by the budget when it is used up."""
        self._holder.forget()

    def close(self) -> None:
        """The holder is gone, and everything that it held with it."""
        self.give_back(self.held_bytes)
        self._holder = _NO_HOLDER


class _NoHolder:
    """Stands in for the holder of a closed share, so that a holder and its share do not keep each other alive."""

    __slots__ = ()

    def forget(self) -> None: ...


_NO_HOLDER: Final = _NoHolder()

REMEMBERED: Final = Budget(limits.REMEMBERED_BYTES)
"""The budget of this process for everything that can be forgotten."""

LABELS: Final = Budget(limits.LABELS_BYTES)
"""The budget for series of metrics, which cannot be forgotten while they are in use and so must not crowd out what can."""


_LONGEST: Final = limits.REMEMBERED_TEXT_BYTES
_AHEAD: Final = 16
"""The most entries that are paid for before they are kept."""


_PLACES: Final = 1024


class Seen:
    """Which texts came lately, told by their hashes, so that a table need not keep those that come once.

    It says now and then that a text is new although it came: then another one has taken its place. Python's hashes cannot be
    foreseen by a peer.
    """

    __slots__ = ("_hashes",)

    def __init__(self) -> None:
        self._hashes = [0] * _PLACES

    def again(self, text: bytes) -> bool:
        """Whether it came before; from now on it did."""
        hashed = hash(text)
        place = hashed % _PLACES
        if self._hashes[place] == hashed:
            return True
        self._hashes[place] = hashed
        return False


class Table(Generic[K, V]):
    """Values by a text that a peer sent, in two generations, so that a flood of texts that occur once cannot push out
    those that occur all the time.

    `recent.get(key)` is the lookup of the hot path. If it finds nothing, `older.get(key)` may, and the caller then keeps
    the value again. Both dicts live as long as the table, so that callers may hold on to their `get`.
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
        """An entry counts `entry_bytes`, and each octet of its text `copies` times: for its key, its value, and what is
        derived from it."""
        self.recent: Final[dict[K, V]] = {}
        self.older: Final[dict[K, V]] = {}
        self._recent_bytes = 0
        self._paid_bytes = 0
        """What the share was charged for the recent generation: some entries in advance, which makes each entry cheaper."""
        self._older_bytes = 0
        self._generation_bytes: Final = max_bytes // 2
        self._entry_bytes: Final = entry_bytes
        self._copies: Final = copies
        self._share: Final = Share(budget, name, self)

    def find(self, key: K, text_bytes: int) -> V | None:
        """The value of this key from either generation, kept again if it was in the older one. Costs a call more than
        `recent.get`."""
        found = self.older.get(key)
        if found is not None:
            self.keep(key, found, text_bytes)
        return found

    def keep(self, key: K, value: V, text_bytes: int) -> None:
        """Remember it, unless its text is too long to be remembered."""
        if text_bytes > _LONGEST:
            return
        cost = self._entry_bytes + self._copies * text_bytes
        recent_bytes = self._recent_bytes + cost
        if recent_bytes > self._paid_bytes:
            recent_bytes = self._pay(cost)
        self.recent[key] = value
        self._recent_bytes = recent_bytes

    def _pay(self, cost: int) -> int:
        """Make room for an entry of this cost, in a new generation if need be. Returns the octets of its generation with it."""
        if self._recent_bytes + cost > self._generation_bytes or len(self.recent) > limits.INTERNED_FIELDS - _AHEAD:
            self.forget()
        needed = self._recent_bytes + cost
        ahead = max(needed, min(needed + _AHEAD * self._entry_bytes, self._generation_bytes)) - self._paid_bytes
        self._paid_bytes += ahead
        self._share.add(ahead)  # which may make us forget
        return self._recent_bytes + cost

    def forget(self) -> None:
        """Begin a new generation; what was in the older one is gone."""
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
