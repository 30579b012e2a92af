"""Pattern: a regular expression from a policy, matched in linear time.

Routes of a control plane may carry regular expressions, and any client chooses the text that they are tried on. Python's own engine backtracks,
so that one request could hold the loop for minutes; RE2 does not, whatever the expression and the text. It takes each octet
through the whole program at worst, though. So a text may only be so long as the program's size allows, and whoever tries
expressions gives an Effort, which bounds what all of them cost one request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from proxy.core import limits
from proxy.core.loop.effort import Effort
from proxy.policy.routes.program import Program, match_of, program_of

_CALL_STEPS: Final = 100
"""What it costs to call RE2 at all, 0.5 µs, in steps."""


class Pattern:
    """Compared and hashed by its text, as policies are compared to see whether they have changed."""

    __slots__ = ("text", "size", "parts", "_program", "_match", "_search")

    def __init__(self, text: str) -> None:
        """PatternError if the text is not a valid pattern, if RE2 would read it differently than Linkerd's engine, or if it
        would cost too much.
        """
        self.text: Final = text
        self._program: Final[Program] = program_of(text)  # kept, so that equal patterns find it
        self.size: Final[int] = self._program.size
        self.parts: Final[int] = self._program.parts
        """How many parts of a policy it counts for when one is read in shares."""
        self._match: Final[Any] = self._program.match  # re2 has no types
        self._search: Final[Any] = self._program.search  # re2 has no types

    def covers(self, value: bytes, effort: Effort | None = None) -> bool:
        """Whether the leftmost match is the whole value, which is how Linkerd uses its engine: `a|ab` does not cover `ab`.
        TooCostlyError if that could hold the loop.
        """
        (effort or Effort()).spend(_CALL_STEPS + len(value) * self.size, self.text)
        # The leftmost match is the one at the beginning if there is one. To look for others would cost the whole text each time.
        hit = self._match(value)
        return hit is not None and hit.end() == len(value)

    def occurs_in(self, value: bytes, effort: Effort | None = None) -> bool:
        """Whether it matches anywhere: for expressions that have their own anchors. TooCostlyError as for `covers`."""
        (effort or Effort()).spend(_CALL_STEPS + len(value) * self.size, self.text)
        return self._search(value) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


TOGETHER_SIZE: Final = 256
"""The largest pattern that is compiled together with others; it is some hundred characters long."""

TOGETHER_SIZES: Final = 16384
"""What patterns that are compiled together have in instructions at most: some hundred usual ones, some milliseconds."""

_STEPS: Final = 2
"""A set costs 10 ns a step at worst, a single pattern 5."""


_PIECES: Final = 64
"""A text of more pieces than this is not tried on all patterns at once."""


class Patterns:
    """Small patterns that are tried on one value together, which costs about as much as one of them alone."""

    __slots__ = ("_beginnings", "_count", "_match", "_name", "_piece_bytes", "_size")

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._beginnings: Final = [beginning_of("^" + one.text.removeprefix("^")) for one in patterns]
        self._count: Final = len(patterns)
        self._size: Final[int] = _STEPS * sum([one.size for one in patterns])
        self._piece_bytes: Final[int] = (limits.MATCH_STEPS - _CALL_STEPS) // self._size
        """So many octets may be tried before the clock is looked at again."""
        self._match: Final = match_of([*(one.text.encode() for one in patterns), _ANYTHING])
        """None if they are too large together: then they are tried one by one."""
        self._name: Final = f"one of {self._count} expressions"

    def likely(self, value: bytes, effort: Effort) -> Sequence[int]:
        """Positions of the patterns that may cover the value; every pattern that does is among them."""
        match = self._match
        piece_bytes = self._piece_bytes
        if match is not None and len(value) <= _PIECES * piece_bytes:
            # RE2 cannot be interrupted. But what it has walked through once is next to nothing when it comes to it again, so
            # that a long text is walked through piece by piece, from its beginning each time.
            walked = 0
            while walked + piece_bytes < len(value):
                walked += piece_bytes
                effort.spend(_CALL_STEPS + piece_bytes * self._size, self._name)
                match(value[:walked])
            effort.spend(_CALL_STEPS + (len(value) - walked) * self._size, self._name)
            found = match(value)
            # RE2 finds nothing at all when it would need more memory than it may have.
            if found and self._count in found:
                found.remove(self._count)
                return found
        effort.spend(_CALL_STEPS * self._count // 16, self._name)
        return [place for place, beginning in enumerate(self._beginnings) if value.startswith(beginning)]


def grouped(sizes: Sequence[int]) -> list[slice]:
    """How patterns of these sizes are compiled together: in their order, as many as TOGETHER_SIZES allows."""
    found: list[slice] = []
    first = total = 0
    for place, size in enumerate(sizes):
        if total and total + size > TOGETHER_SIZES:
            found.append(slice(first, place))
            first, total = place, 0
        total += size
    if total:
        found.append(slice(first, len(sizes)))
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


# ---- how an expression begins

_LITERAL: Final = re.compile(r"\^((?:[A-Za-z0-9/_\-~%=@:,&;!' ]|\\[./\-_~])*)")
"""Characters that stand for themselves, in RE2 and in Rust's engine alike, behind the anchor."""
_ALTERNATIVES: Final = re.compile(
    r"\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|(?P<open>\()|(?P<close>\))|(?P<or>\|)", re.DOTALL
)


def beginning_of(expression: str) -> bytes:
    """The octets with which every text that this expression matches begins; empty where that cannot be derived simply."""
    found = _LITERAL.match(expression)
    if found is None or _has_alternatives(expression):
        return b""
    literal = found[1]
    if expression[found.end() : found.end() + 1] in ("?", "*", "{"):
        literal = literal[:-1].removesuffix("\\")  # the last character need not be there
    return literal.replace("\\", "").encode()


def _has_alternatives(expression: str) -> bool:
    """Whether the whole expression is a list of alternatives: then the anchor belongs to the first of them only."""
    depth = 0
    for found in _ALTERNATIVES.finditer(expression):
        if found["open"]:
            depth += 1
        elif found["close"]:
            depth -= 1
        elif found["or"] and depth <= 0:
            return True
    return False
