"""InFlight: a count of the requests that were passed on and whose response has not begun.

A whole side has one, or each connection has its own. Beyond `most`, the stage
that owns the count sheds requests instead of passing them on.
"""

from __future__ import annotations

from typing import Final


class InFlight:
    __slots__ = ("count", "most")

    def __init__(self, most: int) -> None:
        self.count = 0
        self.most: Final = most
