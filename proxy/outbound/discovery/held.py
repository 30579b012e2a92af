"""The destinations that one connection uses, of which it may name many: explicit clients and ingresses name one per request.

A destination is held until the connection ends, or until more than `limits.HELD_DESTINATIONS` others have been used since.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.watch import Absent
from proxy.outbound.discovery.discover import Destination, Discovery, Kind
from proxy.outbound.discovery.effective import Target


class HeldDestinations:
    __slots__ = ("_discovery", "_held")

    def __init__(self, discovery: Discovery) -> None:
        self._discovery: Final = discovery
        self._held: Final[dict[tuple[Target, Kind], Destination]] = {}
        """The one that was asked for first comes first."""

    def take(self, target: Target, kind: Kind) -> Destination:
        """The destination of this target."""
        key = (target, kind)
        found = self._held.get(key)
        if found is None or isinstance(found.effective.value, Absent):
            found = self._discovery.get(target, kind)
            found.hold()
            old = self._held.pop(key, None)
            if old is None and len(self._held) >= limits.HELD_DESTINATIONS:
                old = self._held.pop(next(iter(self._held)))
            if old is not None:
                old.release()
            self._held[key] = found
        return found

    def release(self) -> None:
        """The connection has ended."""
        for destination in self._held.values():
            destination.release()
        self._held.clear()
