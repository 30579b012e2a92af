"""How long the shares take in which a table is made."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Shares(NamedTuple, Generic[T]):
    made: T
    parts: int
    """What all shares have counted together."""
    pauses: int
    longest_s: float
    whole_s: float


def timed(making: Generator[int, None, T]) -> Shares[T]:
    """Make all of it; times are CPU time."""
    pauses = parts = 0
    longest_s = whole_s = 0.0
    gc.disable()  # a collection may fall into any share, and has nothing to do with it
    try:
        while True:
            began_s = time.thread_time()
            try:
                parts += next(making)
            except StopIteration as end:
                made: T = end.value
                break
            finally:
                took_s = time.thread_time() - began_s
                longest_s = max(longest_s, took_s)
                whole_s += took_s
            pauses += 1
    finally:
        gc.enable()
    return Shares(made, parts, pauses, longest_s, whole_s)
