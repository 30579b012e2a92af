"""Resolution: which addresses a name has now, as discovery has said so far.

Law: a value, made anew by each update. Whoever balances compares it with
the one before: an address whose metadata is equal keeps its endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from proxy.core.addr import Addr

M = TypeVar("M")

PENDING: Final = "pending"
"""Nothing has been said yet."""
KNOWN: Final = "known"
"""`endpoints` is the whole truth, even when empty."""
ABSENT: Final = "absent"
"""The name does not exist; balances like an empty set."""
FAILED: Final = "failed"
"""The question was refused for good; `error` says why."""


@dataclass(frozen=True, slots=True)
class Resolution(Generic[M]):
    state: str = PENDING
    endpoints: dict[Addr, M] = field(default_factory=dict)
    """Never changed once made."""
    error: str = ""
