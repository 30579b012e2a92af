"""Resolution: which addresses a name has now, as far as discovery has reported.

A value, made anew by each update (docs/linkerd/balancing.md, section 4.2). A
balancer compares it with the one before: an address whose metadata is equal
keeps its endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

from proxy.core.address.addr import Addr

M = TypeVar("M")

PENDING: Final = "pending"
"""There is no answer yet."""
KNOWN: Final = "known"
"""`endpoints` has all endpoints, even when it is empty."""
ABSENT: Final = "absent"
"""The name does not exist; balances like an empty set."""
FAILED: Final = "failed"
"""The lookup was refused for good; `error` says why."""


RESET: Final = "Reset"
ADD: Final = "Add"
REMOVE: Final = "Remove"


class Resolution(Generic[M]):
    """Compared by value. A plain class, because mypyc cannot compile a generic dataclass with slots."""

    __slots__ = ("state", "endpoints", "error", "op")

    def __init__(
        self, state: str = PENDING, endpoints: Mapping[Addr, M] | None = None, error: str = "", op: str = RESET
    ) -> None:
        self.op: Final = op
        """The kind of update that made it, for counting: RESET, ADD or REMOVE. It is not compared."""
        self.state: Final = state
        self.endpoints: Final[Mapping[Addr, M]] = endpoints if endpoints is not None else {}
        """Never changed once made."""
        self.error: Final = error

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Resolution)
            and self.state == other.state
            and self.error == other.error
            and self.endpoints == other.endpoints
        )

    def __hash__(self) -> int:
        return hash((self.state, self.error, len(self.endpoints)))

    def __repr__(self) -> str:
        return f"Resolution({self.state!r}, {self.endpoints!r}, {self.error!r})"


def reset(endpoints: Mapping[Addr, M]) -> Resolution[M]:
    """A resolution with exactly these endpoints."""
    return Resolution(KNOWN, dict(endpoints))


def add(before: Resolution[M], endpoints: Mapping[Addr, M]) -> Resolution[M]:
    """A resolution with these endpoints as well; for an address that was there, the metadata is replaced."""
    return Resolution(KNOWN, {**before.endpoints, **endpoints}, op=ADD)


def remove(before: Resolution[M], addrs: Iterable[Addr]) -> Resolution[M]:
    """A resolution without these addresses; unknown ones are ignored."""
    gone = set(addrs)
    if before.state == PENDING or gone.isdisjoint(before.endpoints):
        return before
    kept = {addr: meta for addr, meta in before.endpoints.items() if addr not in gone}
    return Resolution(KNOWN, kept, op=REMOVE)
