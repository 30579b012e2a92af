"""Pattern: a regular expression from a policy, matched in linear time.

Routes of a control plane may carry regular expressions, and any client chooses the text that they are tried on. Python's own engine backtracks,
so that one request could hold the loop for minutes; RE2 does not, whatever the expression and the text. It takes each octet
through the whole program at worst, though, and so a text may only be so long as the program's size allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proxy.core import limits
from proxy.policy.routes.program import Program, match_of, program_of


class TextTooLongError(Exception):
    """Trying this pattern on this text could hold the loop. The request is treated as one that no route takes."""


class Pattern:
    """Compared and hashed by its text, as policies are compared to see whether they have changed."""

    __slots__ = ("text", "size", "parts", "_program", "_search", "_most_bytes")

    def __init__(self, text: str) -> None:
        """PatternError if the text is not a valid pattern, if RE2 would read it differently than Linkerd's engine, or if it
        would cost too much.
        """
        self.text: Final = text
        self._program: Final[Program] = program_of(text)  # kept, so that equal patterns find it
        self.size: Final[int] = self._program.size
        self.parts: Final[int] = self._program.parts
        """How many parts of a policy it counts for when one is read in shares."""
        self._search: Final[Any] = self._program.search  # re2 has no types
        self._most_bytes: Final[int] = limits.MATCH_STEPS // self.size

    def covers(self, value: bytes) -> bool:
        """Whether the leftmost match is the whole value, which is how Linkerd uses its engine: `a|ab` does not cover `ab`.
        TextTooLongError if the value is too long for this pattern.
        """
        if len(value) > self._most_bytes:
            raise TextTooLongError(self.text)
        hit = self._search(value)
        return hit is not None and hit.span() == (0, len(value))

    def occurs_in(self, value: bytes) -> bool:
        """Whether it matches anywhere: for expressions that have their own anchors. TextTooLongError as for `covers`."""
        if len(value) > self._most_bytes:
            raise TextTooLongError(self.text)
        return self._search(value) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


TOGETHER: Final = 512
"""Patterns that are compiled together at most: some milliseconds."""

TOGETHER_SIZE: Final = 256
"""The largest that is compiled together with others; it is some hundred characters long."""


class Patterns:
    """Up to TOGETHER small patterns that are tried on one value together, which costs about as much as one of them alone."""

    __slots__ = ("_count", "_match")

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._count: Final = len(patterns)
        self._match: Final = match_of([*(one.text.encode() for one in patterns), _ANYTHING])
        """None if they are too large together: then they are tried one by one."""

    def likely(self, value: bytes) -> Sequence[int]:
        """Positions of the patterns that may cover the value; every pattern that does is among them."""
        count = self._count
        match = self._match
        found = match(value) if match is not None else None
        # RE2 finds nothing at all when it would need more memory than it may have.
        if not found or count not in found:
            return range(count)
        found.remove(count)
        return found


_ANYTHING: Final = rb"(?s)\C*"
"""A pattern behind those of a set, which is always found. It matches any octets, because values need not be UTF-8."""


def anchored(expression: str) -> str:
    """The expression of a ServiceProfile with anchors around its text. They are added whatever the expression means: `a|b`
    becomes `^a|b$`.
    """
    expression = expression.strip()
    if not expression.startswith("^"):
        expression = "^" + expression
    return expression if expression.endswith("$") else expression + "$"
