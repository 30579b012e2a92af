"""Troubles: why addresses cannot be connected to, and since when, so that error answers can say it.

Each side of the proxy has one. It holds at most `limits.TROUBLES` addresses; the one whose last failure is oldest is forgotten
first. A successful connect removes its address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from proxy.core import limits


class Troubles:
    """Keys are addresses as text; any key will do that is the same for failure, success and lookup."""

    __slots__ = ("_clock", "_known")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._known: Final[dict[str, tuple[str, float]]] = {}
        """The last error of each address, and when its failures began."""

    def failed(self, key: str, text: str) -> None:
        known = self._known
        old = known.pop(key, None)
        known[key] = (text, self._clock() if old is None else old[1])
        if len(known) > limits.TROUBLES:
            del known[next(iter(known))]

    def succeeded(self, key: str) -> None:
        self._known.pop(key, None)

    def of(self, key: str) -> str:
        """The trouble of this key, such as `Connection refused (ECONNREFUSED), for 12s`; empty if none is known."""
        found = self._known.get(key)
        return "" if found is None else f"{found[0]}, for {lasting(self._clock() - found[1])}"

    def of_some(self, keys: Iterable[str], most: int) -> list[str]:
        """The first `most` of these keys that have one, each with its trouble."""
        found: list[str] = []
        for key in keys:
            text = self.of(key)
            if text:
                found.append(f"{key}: {text}")
                if len(found) == most:
                    break
        return found


def lasting(seconds: float) -> str:
    """A duration in a unit that a person would use."""
    if seconds < 120.0:
        return f"{seconds:.0f}s"
    return f"{seconds / 60.0:.0f}m" if seconds < 7200.0 else f"{seconds / 3600.0:.0f}h"
