"""PortSet: a set of ports as ranges, so that `1-65535` costs one tuple.

A value; ranges are inclusive, sorted and do not touch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final


class PortSet:
    __slots__ = ("ranges", "_lows")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        merged: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        self.ranges: Final = tuple(merged)
        self._lows: Final = [low for low, _ in merged]

    @classmethod
    def of(cls, *ports: int) -> PortSet:
        return cls((port, port) for port in ports)

    def __contains__(self, port: int) -> bool:
        index = bisect_right(self._lows, port) - 1
        return index >= 0 and port <= self.ranges[index][1]

    def __iter__(self) -> Iterator[int]:
        for low, high in self.ranges:
            yield from range(low, high + 1)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.ranges)

    def __or__(self, other: PortSet) -> PortSet:
        return PortSet((*self.ranges, *other.ranges))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PortSet) and other.ranges == self.ranges

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __repr__(self) -> str:
        return f"PortSet({','.join(str(low) if low == high else f'{low}-{high}' for low, high in self.ranges)})"
