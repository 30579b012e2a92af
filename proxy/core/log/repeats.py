"""Repeats: shows people the same warning once in ten seconds, with the number of times that it came.

Two warnings are the same if they come from one place in the code and differ in nothing but a client's port or a duration.
Only the form for people is reduced so: log collectors get every line that fold.py lets through.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Final

from proxy.core import limits

WINDOW_S: Final = 10.0

_varying: Final = re.compile(r":[0-9]{5}\b|\b[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)? ?m?s\b")
"""A port of five digits, which is a client's as a rule, and a duration."""

Same = tuple[str, int, str]


class _Kind:
    __slots__ = ("began_at", "left_out", "last")

    def __init__(self, now: float) -> None:
        self.began_at = now
        self.left_out = 0
        self.last: logging.LogRecord | None = None


class Repeats:
    __slots__ = ("_clock", "_kinds", "_lock")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._kinds: Final[dict[Same, _Kind]] = {}
        self._lock: Final = threading.Lock()
        """The control plane logs from several threads."""

    def admits(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        key = (record.pathname, record.lineno, _varying.sub("", record.getMessage()))
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None:
                if len(self._kinds) < limits.REPEATED_WARNINGS:
                    self._kinds[key] = _Kind(self._clock())
                return True
            kind.left_out += 1
            kind.last = record
            return False

    def due(self, is_end: bool = False) -> list[logging.LogRecord]:
        """One line for each warning whose ten seconds are over (all, at the end) and that came again meanwhile."""
        found: list[logging.LogRecord] = []
        now = self._clock()
        with self._lock:
            for key, kind in list(self._kinds.items()):
                if not is_end and now - kind.began_at < WINDOW_S:
                    continue
                if kind.last is None:
                    del self._kinds[key]
                    continue
                found.append(_counted(kind.last, kind.left_out, now - kind.began_at))
                kind.began_at, kind.left_out, kind.last = now, 0, None
        return found


def _counted(record: logging.LogRecord, count: int, seconds: float) -> logging.LogRecord:
    copy = logging.makeLogRecord(record.__dict__)
    times = "once more" if count == 1 else f"{count} times more"
    copy.msg, copy.args = f"{record.getMessage()} ({times} in the last {seconds:.0f}s)", None
    return copy
