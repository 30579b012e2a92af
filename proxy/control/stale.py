"""Stale: what one controller said last and cannot be asked about now.

An answer is stale from the moment its stream fails until the next stream's first message replaces it. As long as
anything is, what was learnt from the control plane is kept even if nobody uses it (outbound/discover.py,
inbound/policies.py), since it could not be learnt again.
"""

from __future__ import annotations

from typing import Final

from proxy.core.log import logger
from proxy.core.reactor import Clock

_log: Final = logger(__name__)

_SAID_AFTER_S: Final = 5.0
"""A stream that only broke is there again by then."""


class Stale:
    __slots__ = ("name", "_clock", "_since", "_is_said")

    def __init__(self, name: str, clock: Clock) -> None:
        """`name` says whose answers these are, for texts."""
        self.name: Final = name
        self._clock: Final = clock
        self._since: Final[dict[object, float]] = {}
        """By the streams, the one that failed first standing first."""
        self._is_said = False

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, stream: object) -> None:
        """It had answered, and has failed. Again and again, as long as it fails."""
        self._since.setdefault(stream, self._clock())

    def end(self, stream: object) -> None:
        """It has answered again, or nobody asks any more. Idempotent."""
        if self._since.pop(stream, None) is not None and not self._since and self._is_said:
            self._is_said = False
            _log.info("%s answers again", self.name)

    @property
    def age_s(self) -> float:
        """How long the oldest of them has been; 0 if there is none."""
        return self._clock() - next(iter(self._since.values())) if self._since else 0.0

    def look(self) -> None:
        """Called now and then: say it, once."""
        if not self._is_said and self.age_s >= _SAID_AFTER_S:
            self._is_said = True
            _log.warning("%s: what it said last is used until it answers again", str(self))

    def __str__(self) -> str:
        return f"{self.name} has not answered for {self.age_s:.0f}s ({len(self._since)} streams)"
