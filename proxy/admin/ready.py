"""Readiness: true once everything that was waited for has come, until the shutdown (docs/linkerd/admin-tap-tracing-shutdown.md, section 2).

There is one latch for each thing that is waited for; its owner releases it once. The shutdown takes one and never releases it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final


class Latch:
    __slots__ = ("_readiness", "name")

    def __init__(self, readiness: Readiness, name: str) -> None:
        self._readiness: Final = readiness
        self.name: Final = name

    def release(self) -> None:
        """Idempotent."""
        self._readiness.waits_for.pop(self, None)


class Readiness:
    __slots__ = ("waits_for", "details")

    def __init__(self, details: Callable[[], Iterable[str]] = tuple) -> None:
        self.details: Callable[[], Iterable[str]] = details
        """Lines for people that follow `ready`, about things that do not hold back readiness."""
        self.waits_for: Final[dict[Latch, None]] = {}

    def latch(self, name: str) -> Latch:
        """Hold readiness back until the latch is released; `name` states what is waited for."""
        made = Latch(self, name)
        self.waits_for[made] = None
        return made

    @property
    def is_ready(self) -> bool:
        return not self.waits_for
