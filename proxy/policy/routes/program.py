"""Program: what RE2 makes of one expression. Equal expressions share it, and what all of them cost is bounded.

This module is the only one that compiles expressions which are not written in this project. RE2 matches in linear time, but a
few characters can still be much work for it: `\\pL` is a table of 600 ranges, `{1000}` is a thousand copies, and time grows with the
square of a run of optional copies. So an expression is counted before it is compiled, and its program is bounded. The worst
expression that is taken costs 30 ms once (docs/design.md, "What bounds one turn").

The dialect is that of the Rust `regex` crate, which Linkerd uses and whose syntax RE2 shares but for some corners. Where RE2 would give
the same characters another meaning the expression is refused rather than matched differently; docs/compatibility.md lists what
RE2 cannot do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

from proxy.core import limits

_OBJECT_BYTES: Final = 4096
_INSTRUCTION_BYTES: Final = 12
"""What a program was measured to hold: 3 KB, and 10 bytes for each instruction of its two directions."""

_INSTRUCTIONS_PER_PART: Final = 256
_SQUARE_PER_PART: Final = 40_000
"""What is compiled in 0.1 ms, the usual part of a policy: so many instructions, or optional parts whose number squared is this."""

_TOKEN: Final = re.compile(
    r"""
      \\(?P<escape>[QECZGK<>0-9])           # RE2 or Perl give these a meaning that Rust's engine does not know
    | (?P<class>\\[pP](?:\{[^}]*\}|.))      # a Unicode class and its braces
    | \\x\{[^}]*\}                          # a character by its number
    | (?P<boundary>\\[bB]\{)                # \b{start}, which RE2 reads as a boundary and five literal characters
    | \\.                                   # any other escape means the same, or RE2 refuses it
    | (?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])  # a bracketed class
    | (?P<unended>\[)                       # a class that never ends, so that what follows is part of no pattern
    | \{(?P<least>[0-9]+)(?P<comma>,)?(?P<most>[0-9]*)\}
    | (?P<brace>\{)                         # a brace that repeats nothing is literal in RE2, an error in Rust
    | \(\?[A-Za-z-]*\)                      # flags for what follows
    | (?P<open>\((?:\?(?:P?<[^>]*>|[A-Za-z-]*:))?)
    | (?P<close>\))
    | (?P<optional>[?*]|\|(?=[|)])|\|\Z|(?<=[(|:>])\|)  # an alternative that is empty is one more way to leave a part out
    | [^\\[{()?*|]+
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_OPERATOR: Final = re.compile(r"\\.|\[:\^?\w+:\]|(?P<nested>\[)|(?P<operator>&&|--|~~)", re.DOTALL)
_CLASS: Final = re.compile(r"\\(?:[pP]|(.))", re.DOTALL)


class PatternError(ValueError):
    """The text says which part of which pattern cannot be compiled."""


class Program:
    """`match(octets)`, which begins with them, and `search(octets)` are RE2's, which has no types. Get one by `program_of`."""

    __slots__ = ("match", "search", "size", "parts", "_bytes", "__weakref__")

    def __init__(self, text: str) -> None:
        work = _work_of(text)
        made = _compiled(text)
        self.match: Final[Any] = made.match  # re2 has no types
        self.search: Final[Any] = made.search  # re2 has no types
        self.size: Final[int] = made.programsize
        """Its instructions. Matching takes each octet of a text through all of them, at worst."""
        backwards = max(made.reverseprogramsize, 0)  # made now, so that no request has to wait for it
        self.parts: Final[int] = 1 + (self.size + backwards) // _INSTRUCTIONS_PER_PART + work
        """How many parts of a policy the compilation counts for."""
        self._bytes: Final = _OBJECT_BYTES + _INSTRUCTION_BYTES * (self.size + backwards)
        held.bytes += self._bytes

    def __del__(self) -> None:
        held.bytes -= getattr(self, "_bytes", 0)  # it has none if the text could not be compiled


class Held:
    """What all programs of this process hold, by estimate."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


held: Final = Held()
_programs: Final[WeakValueDictionary[str, Program]] = WeakValueDictionary()


def program_of(text: str) -> Program:
    """The program of this expression, which is compiled if no pattern in use has the same. PatternError if it is not valid, if
    RE2 would read it differently than Linkerd's engine, or if it would cost too much.
    """
    found = _programs.get(text)
    if found is None:
        if held.bytes >= limits.PROGRAMS_BYTES:
            raise PatternError(
                f"the pattern is one too many: all of this process hold {held.bytes >> 20} MiB already: {text[:60]!r}"
            )
        found = _programs[text] = Program(text)
    return found


def match_of(texts: Iterable[bytes]) -> Callable[[bytes], list[int] | None] | None:
    """Compile the expressions together, as a function from a text to the positions of those that may cover it; None if they are
    too large together. The function returns None, or nothing found, when it would need more memory than it may have.
    """
    import re2

    together = re2.Set.FullMatchSet(_options(limits.PROGRAM_SET_BYTES))
    try:
        for text in texts:
            together.Add(text)
        together.Compile()
    except re2.error:
        return None
    found: Callable[[bytes], list[int] | None] = together.Match
    return found


@lru_cache(2)
def _options(most_bytes: int) -> Any:  # re2.Options has no types
    import re2

    found = re2.Options()
    found.log_errors = False
    # Only where a match begins and ends is asked for. To follow the groups too would cost as many times more as there are.
    found.never_capture = True
    found.max_mem = most_bytes
    return found


def _compiled(text: str) -> Any:  # a pattern of re2 has no types
    import re2  # 2.6 MB and 6 ms that a sidecar without such routes need not pay

    try:
        return re2.compile(text.encode(), _options(limits.PROGRAM_BYTES))
    except re2.error as error:
        raise PatternError(f"invalid regular expression {text!r}: {error.args[0].decode(errors='replace')}") from None
    except UnicodeEncodeError as error:
        raise PatternError(f"invalid regular expression {text!r}: {error.reason}") from None
    finally:
        re2.purge()  # it would keep the last 128 in a table of its own, in use or not


def _work_of(text: str) -> int:
    """How many parts of a policy the reading of this expression counts for, before any program is made. PatternError if that is
    too much, or if RE2 and Rust's engine read it differently.
    """
    if len(text.encode(errors="replace")) > limits.PATTERN_BYTES:
        raise PatternError(f"the pattern is longer than {limits.PATTERN_BYTES} bytes: {text[:60]!r}…")
    classes = 0
    choices = last = 0
    """The optional parts so far, in this group; and those of its last element."""
    outer: list[int] = []
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        if kind is None:
            last = 0
        elif kind == "open":
            outer.append(choices)
            choices = 0
        elif kind == "close":
            last = choices
            choices += outer.pop() if outer else 0
        elif kind == "optional":
            last += 1
            choices += 1
        elif kind == "most":
            copies = _repeated(last, found)
            choices += copies - last
            last = copies
        elif kind == "class" or kind == "set":
            last = 0
            classes += _classes_of(text, found)
        elif kind == "unended":
            break  # RE2 says what is missing; to look for the end of each further bracket would take seconds
        else:
            raise PatternError(f"invalid regular expression {text!r}: {_foreign_part(kind, found[0])}")
    choices += sum(outer)
    if classes > limits.PATTERN_CLASSES:
        raise PatternError(
            f"the pattern has {classes} Unicode classes where {limits.PATTERN_CLASSES} may be: {text[:60]!r}…"
        )
    if choices > limits.PATTERN_CHOICES:
        raise PatternError(
            f"the pattern has {choices} optional parts where {limits.PATTERN_CHOICES} may be: {text[:60]!r}…"
        )
    return classes + choices * choices // _SQUARE_PER_PART


def _repeated(choices: int, found: re.Match[str]) -> int:
    """The optional parts of an element with so many, repeated as this `{least,most}` says."""
    least = int(found["least"][:9])
    if found["comma"] is None:
        return choices * least
    most = int(found["most"][:9]) if found["most"] else least + 1
    return choices * max(least, most) + max(most - least, 0)


def _classes_of(text: str, found: re.Match[str]) -> int:
    """The Unicode classes in this token. The operators of Rust's engine and a class within a class are refused."""
    written = found["set"]
    if written is None:
        return 1
    for part in _OPERATOR.finditer(written[1:]):
        if part["operator"] is not None:
            raise PatternError(
                f"invalid regular expression {text!r}: the class operator {part['operator']} is not supported"
            )
        if part["nested"] is not None:
            raise PatternError(f"invalid regular expression {text!r}: a class within a class is not supported")
    return sum(part[1] is None for part in _CLASS.finditer(written))


def _foreign_part(kind: str, written: str) -> str:
    if kind == "escape":
        return f"unrecognized escape sequence: {written}"
    if kind == "boundary":
        return "word boundaries with a name are not supported"
    return "repetition quantifier expects a valid decimal"
