"""Choices: a fuzz input read as decisions; each octet chooses what comes next in a grammar.

An input that is mutated in one octet changes one decision; at its end the first of each list is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

_T = TypeVar("_T")


class Choices:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, below: int) -> int:
        octet = self._data[self._at] if self._at < len(self._data) else 0
        self._at += 1
        return octet % below

    def of(self, options: Sequence[_T]) -> _T:
        return options[self.number(len(options))]

    def some(self, options: Sequence[_T], most: int) -> list[_T]:
        return [self.of(options) for _ in range(self.number(most + 1))]


def decisions(dice: Random, data: bytes) -> bytes:
    """A shape (mutate.Shape): one decision is changed, left out or inserted, or a whole new input is drawn."""
    kind = dice.randrange(4)
    if kind == 0 or not data:
        return dice.randbytes(dice.randrange(8, 60))
    place = dice.randrange(len(data))
    return data[:place] + (b"" if kind == 1 else dice.randbytes(1)) + data[place + (kind != 3) :]


SEEDS = (b"", bytes(range(40)), *(Random(seed).randbytes(50) for seed in range(20)))
