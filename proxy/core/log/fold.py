"""Fold: bounds the log lines of one kind per second, so that peers cannot fill a disk or drown other lines.

A kind is a place in the code. Each has a burst of its own; lines beyond it are
counted, and the count is logged as one line when the place may log again, or
when `due` is called. Lines finer than INFO are not folded: a person who turned
them on wants all of them, and the writer's buffer bounds them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from proxy.core import limits

Place = tuple[str, int]


class _Kind:
    __slots__ = ("tokens", "filled_at", "left_out", "last")

    def __init__(self, now: float) -> None:
        self.tokens = float(limits.LOG_BURST_LINES)
        self.filled_at = now
        self.left_out = 0
        self.last: logging.LogRecord | None = None


class Fold:
    __slots__ = ("_clock", "_kinds", "_folded")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._kinds: Final[dict[Place, _Kind]] = {}
        """At most one for each place in the code that logs."""
        self._folded: dict[_Kind, None] = {}
        """The kinds whose count has not been logged yet."""

    def admits(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True
        place = (record.pathname, record.lineno)
        now = self._clock()
        kind = self._kinds.get(place)
        if kind is None:
            kind = self._kinds[place] = _Kind(now)
        kind.tokens = min(
            float(limits.LOG_BURST_LINES), kind.tokens + (now - kind.filled_at) * limits.LOG_LINES_PER_SECOND
        )
        kind.filled_at = now
        if kind.tokens < 1.0:
            kind.left_out += 1
            kind.last = record
            self._folded[kind] = None
            return False
        kind.tokens -= 1.0
        return True

    def due(self) -> list[logging.LogRecord]:
        """For each kind of which lines were left out, the last of them with their number."""
        if not self._folded:
            return []
        folded = self._folded
        self._folded = {}
        found: list[logging.LogRecord] = []
        for kind in folded:
            record = kind.last
            if record is None:
                continue
            text = f"{record.getMessage()} (the last of {kind.left_out} such lines; the others were left out)"
            kind.left_out = 0
            kind.last = None
            copy = logging.makeLogRecord(record.__dict__)
            copy.msg, copy.args = text, None
            found.append(copy)
        return found
