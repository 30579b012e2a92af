"""Conditions of a ServiceProfile's routes: values that say whether a request meets them (docs/linkerd/service-profiles.md, section 3).

They see the method and the path without its query, nothing else. A condition also states with which text the path of every
request that meets it begins, as far as that can be derived; profile_table.py tries only the conditions that fit a path.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.loop.effort import Effort
from proxy.policy.routes.pattern import Pattern, beginning_of


@dataclass(frozen=True, slots=True)
class PathIs:
    pattern: Pattern

    def fits(self, method: bytes, path: bytes, effort: Effort) -> bool:
        return self.pattern.occurs_in(path, effort)

    @property
    def beginning(self) -> bytes:
        return beginning_of(self.pattern.text)


@dataclass(frozen=True, slots=True)
class MethodIs:
    method: bytes

    def fits(self, method: bytes, path: bytes, effort: Effort) -> bool:
        return method == self.method

    @property
    def beginning(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class AllOf:
    """Without parts, every request meets it."""

    parts: tuple[RequestCondition, ...]

    def fits(self, method: bytes, path: bytes, effort: Effort) -> bool:
        return all(part.fits(method, path, effort) for part in self.parts)

    @property
    def beginning(self) -> bytes:
        return max((part.beginning for part in self.parts), key=len, default=b"")


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Without parts, no request meets it."""

    parts: tuple[RequestCondition, ...]

    def fits(self, method: bytes, path: bytes, effort: Effort) -> bool:
        return any(part.fits(method, path, effort) for part in self.parts)

    @property
    def beginning(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class NotThat:
    part: RequestCondition

    def fits(self, method: bytes, path: bytes, effort: Effort) -> bool:
        return not self.part.fits(method, path, effort)

    @property
    def beginning(self) -> bytes:
        return b""


RequestCondition = PathIs | MethodIs | AllOf | AnyOf | NotThat
