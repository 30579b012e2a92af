"""Pattern: a regular expression from a policy, matched in linear time.

Routes of a control plane may carry regular expressions, and any client chooses the text that they are tried on. Python's own engine backtracks,
so that one request could hold the loop for minutes; RE2 does not, whatever the expression and the text. This module is the
only one that compiles expressions which are not written in this project.

The dialect is that of the Rust `regex` crate, which Linkerd uses and whose syntax RE2 shares but for some corners. Where RE2 would give the same characters another
meaning the pattern is refused rather than matched differently; docs/compatibility.md lists what RE2 cannot do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

PATTERN_BYTES: Final = 4096
"""The longest expression that is compiled, as long as the Gateway API lets a value be. RE2 bounds what matching may need (8 MiB)."""

_options: Any = None  # re2.Options, which has no types

_FOREIGN: Final = re.compile(
    r"""
      \\(?P<escape>[QECZGK<>0-9])           # RE2 or Perl give these a meaning that Rust's engine does not know
    | \\[pP](?:\{[^}]*\}|.)                 # a Unicode class and its braces
    | \\x\{[^}]*\}                          # a character by its number
    | (?P<boundary>\\[bB]\{)                # \b{start}, which RE2 reads as a boundary and five literal characters
    | \\.                                   # any other escape means the same, or RE2 refuses it
    | (?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])  # a bracketed class
    | (?P<open>\[)                          # a class that never ends, so that what follows is part of no pattern
    | (?P<brace>\{(?![0-9]+(?:,[0-9]*)?\}))             # a brace that repeats nothing is literal in RE2, an error in Rust
    """,
    re.VERBOSE | re.DOTALL,
)
_OPERATOR: Final = re.compile(r"\\.|\[:\^?\w+:\]|(?P<nested>\[)|(?P<operator>&&|--|~~)", re.DOTALL)


class PatternError(ValueError):
    """The text says which part of which pattern cannot be compiled."""


class Pattern:
    """Compared and hashed by its text, as policies are compared to see whether they have changed."""

    __slots__ = ("text", "_search")

    def __init__(self, text: str) -> None:
        """PatternError if the text is not a valid pattern, or if RE2 would read it differently than Linkerd's engine."""
        self.text: Final = text
        self._search: Final[Any] = _compile(text).search  # of re2, which has no types

    def covers(self, value: bytes) -> bool:
        """Whether the leftmost match is the whole value, which is how Linkerd uses its engine: `a|ab` does not cover `ab`."""
        hit = self._search(value)
        return hit is not None and hit.span() == (0, len(value))

    def occurs_in(self, value: bytes) -> bool:
        """Whether it matches anywhere: for expressions that have their own anchors."""
        return self._search(value) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


class Patterns:
    """Several patterns that are tried on one value together, which costs about as much as one of them alone."""

    __slots__ = ("_count", "_match")

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._count: Final = len(patterns)
        self._match: Any = None  # of re2, which has no types
        import re2

        together = re2.Set.FullMatchSet(_options)
        try:
            for one in patterns:
                together.Add(one.text.encode())
            together.Add(_ANYTHING)
            together.Compile()
        except re2.error:
            return  # too large: they are tried one by one
        self._match = together.Match

    def likely(self, value: bytes) -> Sequence[int]:
        """Positions of the patterns that may cover the value; every pattern that does is among them."""
        count = self._count
        match = self._match
        found: list[int] | None = match(value) if match is not None else None
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


def _compile(text: str) -> Any:  # a pattern of re2, which has no types
    if len(text.encode(errors="replace")) > PATTERN_BYTES:
        raise PatternError(f"the pattern is longer than {PATTERN_BYTES} bytes: {text[:60]!r}…")
    foreign = _foreign_part(text)
    if foreign:
        raise PatternError(f"invalid regular expression {text!r}: {foreign}")
    import re2  # 2.6 MB and 6 ms that a sidecar without such routes need not pay

    global _options
    if _options is None:
        _options = re2.Options()
        _options.log_errors = False
    try:
        return re2.compile(text.encode(), _options)
    except re2.error as error:
        raise PatternError(f"invalid regular expression {text!r}: {error.args[0].decode(errors='replace')}") from None
    except UnicodeEncodeError as error:
        raise PatternError(f"invalid regular expression {text!r}: {error.reason}") from None


def _foreign_part(text: str) -> str:
    """The first part of the expression that RE2 and Rust's engine read differently; empty if there is none."""
    for found in _FOREIGN.finditer(text):
        escape = found["escape"]
        if escape is not None:
            return f"unrecognized escape sequence: \\{escape}"
        if found["open"] is not None:
            return ""  # RE2 says what is missing; to look for the end of each further bracket would take seconds
        if found["boundary"] is not None:
            return "word boundaries with a name are not supported"
        if found["brace"] is not None:
            return "repetition quantifier expects a valid decimal"
        for part in _OPERATOR.finditer((found["set"] or "")[1:]):
            if part["operator"] is not None:
                return f"the class operator {part['operator']} is not supported"
            if part["nested"] is not None:
                return "a class within a class is not supported"
    return ""
