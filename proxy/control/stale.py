"""Stale: the answers of one controller that cannot be renewed now.

An answer is stale from the moment its stream fails until the next stream's first message replaces it. As long as
any is, answers of the control plane are kept even if they are not in use (outbound/discovery/discover.py, inbound/policies.py),
because they could not be fetched again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from proxy.core.log import logger
from proxy.core.loop.reactor import Clock

_log: Final = logger(__name__)

_SAID_AFTER_S: Final = 5.0
"""How long to wait before logging: a stream that merely broke has answered again by then."""


class Stale:
    __slots__ = ("name", "_clock", "_since", "_is_said")

    def __init__(self, name: str, clock: Clock) -> None:
        """`name` is the controller's, for log lines."""
        self.name: Final = name
        self._clock: Final = clock
        self._since: Final[dict[Hashable, float]] = {}
        """When each stream failed, the earliest first."""
        self._is_said = False

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, stream: Hashable) -> None:
        """A stream that had answered has failed. Called at each failure."""
        self._since.setdefault(stream, self._clock())

    def end(self, stream: Hashable) -> None:
        """A stream has answered again, or is not needed any longer. Idempotent."""
        if self._since.pop(stream, None) is not None and not self._since and self._is_said:
            self._is_said = False
            _log.info("%s answers again", self.name)

    @property
    def age_s(self) -> float:
        """How long the oldest of them has been stale; 0 if there is none."""
        return self._clock() - next(iter(self._since.values())) if self._since else 0.0

    def look(self) -> None:
        """Called now and then: log that answers are stale, once."""
        if not self._is_said and self.age_s >= _SAID_AFTER_S:
            self._is_said = True
            _log.warning("%s: what it said last is used until it answers again", str(self))

    def __str__(self) -> str:
        return f"{self.name} has not answered for {self.age_s:.0f}s ({len(self._since)} streams)"
