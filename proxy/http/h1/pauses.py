"""Pauses: why a connection does not read at the moment (http/stream.py has the causes).

It reads while there is no cause, and its wire is only told when the first comes and when the last goes.
"""

from __future__ import annotations

from proxy.core.codec import Wire


class Pauses:
    __slots__ = ("causes", "_wire")

    def __init__(self, wire: Wire) -> None:
        self.causes = 0
        """Bits; 0 while it reads."""
        self._wire = wire

    def add(self, cause: int) -> None:
        if not self.causes:
            self._wire.pause_reading()
        self.causes |= cause

    def remove(self, cause: int) -> None:
        if self.causes & cause:
            self.causes &= ~cause
            if not self.causes:
                self._wire.resume_reading()
