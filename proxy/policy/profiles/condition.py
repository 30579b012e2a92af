"""Conditions of a ServiceProfile's routes: values that say whether a request meets them (docs/linkerd/service-profiles.md, section 3).

They see the method and the path without its query, nothing else. A condition also states with which text the path of every
request that meets it begins, as far as that can be derived; profile_table.py tries only the conditions that fit a path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proxy.policy.routes.pattern import Pattern


@dataclass(frozen=True, slots=True)
class PathIs:
    pattern: Pattern

    def fits(self, method: bytes, path: bytes) -> bool:
        return self.pattern.occurs_in(path)

    @property
    def beginning(self) -> bytes:
        return beginning_of(self.pattern.text)


@dataclass(frozen=True, slots=True)
class MethodIs:
    method: bytes

    def fits(self, method: bytes, path: bytes) -> bool:
        return method == self.method

    @property
    def beginning(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class AllOf:
    """Without parts, every request meets it."""

    parts: tuple[RequestCondition, ...]

    def fits(self, method: bytes, path: bytes) -> bool:
        return all(part.fits(method, path) for part in self.parts)

    @property
    def beginning(self) -> bytes:
        return max((part.beginning for part in self.parts), key=len, default=b"")


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Without parts, no request meets it."""

    parts: tuple[RequestCondition, ...]

    def fits(self, method: bytes, path: bytes) -> bool:
        return any(part.fits(method, path) for part in self.parts)

    @property
    def beginning(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class NotThat:
    part: RequestCondition

    def fits(self, method: bytes, path: bytes) -> bool:
        return not self.part.fits(method, path)

    @property
    def beginning(self) -> bytes:
        return b""


RequestCondition = PathIs | MethodIs | AllOf | AnyOf | NotThat


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
