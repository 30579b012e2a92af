"""Which route of a ServiceProfile a request takes: the first in the list whose condition it meets (docs/linkerd/service-profiles.md, section 3).

Routes that fix how a path begins are looked up by that beginning, so that a thousand routes of one API cost about as much
as a few. The others are tried in their order; one expression takes about a microsecond, linear in the path's length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proxy.core.log import logger
from proxy.core.loop.effort import Effort, TooCostlyError
from proxy.core.shares import Reading, at_once
from proxy.policy.profiles.condition import RequestCondition

_log: Final = logger(__name__)

NONE: Final = -1
_FEW: Final = 4
"""Up to this many routes it is faster to try each than to look them up."""


_PER_PART: Final = 32
"""Routes that are put in their places in 0.1 ms."""


def table_of(conditions: Sequence[RequestCondition]) -> ProfileTable:
    """The table, made at once."""
    return at_once(read_table(conditions))


def read_table(conditions: Sequence[RequestCondition]) -> Reading[ProfileTable]:
    """The table, made in shares."""
    anywhere: list[int] = []
    beginnings: dict[bytes, list[int]] = {}
    for place, condition in enumerate(conditions):
        beginning = b"" if len(conditions) <= _FEW else condition.beginning
        if beginning:
            beginnings.setdefault(beginning, []).append(place)
        else:
            anywhere.append(place)
        if place % _PER_PART == _PER_PART - 1:
            yield 1
    return ProfileTable(conditions, anywhere, beginnings)


class ProfileTable:
    """Made anew with each profile, by `table_of` or `read_table`."""

    __slots__ = ("_conditions", "_anywhere", "_beginnings", "_lengths")

    def __init__(
        self, conditions: Sequence[RequestCondition], anywhere: list[int], beginnings: dict[bytes, list[int]]
    ) -> None:
        self._conditions: Final = conditions
        self._anywhere: Final = anywhere
        """Positions of the conditions that any path may meet, whatever it begins with."""
        self._beginnings: Final = beginnings
        self._lengths: Final = sorted({len(beginning) for beginning in beginnings})

    def find(self, method: bytes, path: bytes, effort: Effort | None = None) -> int:
        """The position of the first condition that holds; NONE if none does, or if `effort`, which is the request's, does
        not suffice. A query in `path` is not looked at.
        """
        effort = effort or Effort()
        try:
            return self._find(method, path.partition(b"?")[0], effort)
        except TooCostlyError as error:
            _log.warning("No route of a service profile takes a request whose path has %d octets: %s", len(path), error)
            return NONE
        finally:
            effort.rest()

    def _find(self, method: bytes, path: bytes, effort: Effort) -> int:
        conditions = self._conditions
        best = len(conditions)
        for length in self._lengths:
            if length > len(path):
                break
            places = self._beginnings.get(path[:length])
            if places is not None:
                best = self._first(places, best, method, path, effort)
        best = self._first(self._anywhere, best, method, path, effort)
        return best if best < len(conditions) else NONE

    def _first(self, places: list[int], before: int, method: bytes, path: bytes, effort: Effort) -> int:
        """The first of these positions whose condition holds and that is below `before`; else `before`."""
        for place in places:
            if place >= before:
                break
            if self._conditions[place].fits(method, path, effort):
                return place
        return before
