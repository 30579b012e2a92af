"""Troubles: why an address could not be connected to last, and since when, for whoever must tell a client.

Kept per side of the proxy, for as many addresses as are in trouble, at most `_KEPT`; the one that failed least lately is
forgotten first. A connection that is made ends the trouble of its address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

_KEPT: Final = 256


class Troubles:
    """By any key that is the same for failure, success and question: an address as text."""

    __slots__ = ("_clock", "_known")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._known: Final[dict[str, tuple[str, float]]] = {}
        """What went wrong last, and when it began."""

    def failed(self, key: str, text: str) -> None:
        known = self._known
        old = known.pop(key, None)
        known[key] = (text, self._clock() if old is None else old[1])
        if len(known) > _KEPT:
            del known[next(iter(known))]

    def succeeded(self, key: str) -> None:
        self._known.pop(key, None)

    def of(self, key: str) -> str:
        """Such as `Connection refused (ECONNREFUSED), for 12s`; empty if nothing is known."""
        found = self._known.get(key)
        return "" if found is None else f"{found[0]}, for {lasting(self._clock() - found[1])}"

    def of_some(self, keys: Iterable[str], most: int) -> list[str]:
        """Of the first few that have any, with their keys."""
        found: list[str] = []
        for key in keys:
            text = self.of(key)
            if text:
                found.append(f"{key}: {text}")
                if len(found) == most:
                    break
        return found


def lasting(seconds: float) -> str:
    """In a unit that a person would use."""
    if seconds < 120.0:
        return f"{seconds:.0f}s"
    return f"{seconds / 60.0:.0f}m" if seconds < 7200.0 else f"{seconds / 3600.0:.0f}h"
