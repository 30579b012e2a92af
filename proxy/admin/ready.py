"""Readiness: true once everything that was waited for has come, until the shutdown (docs/linkerd/admin-tap-tracing-shutdown.md, section 2).

One latch per thing waited for; who has a latch releases it once. The shutdown takes one that nobody releases.
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
        """What a person should know though it keeps nobody from being ready: a line each, behind `ready`."""
        self.waits_for: Final[dict[Latch, None]] = {}

    def latch(self, name: str) -> Latch:
        """Hold readiness back until it is released; `name` says for what."""
        made = Latch(self, name)
        self.waits_for[made] = None
        return made

    @property
    def is_ready(self) -> bool:
        return not self.waits_for
