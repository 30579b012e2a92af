"""Reading a message in shares: a policy may bring thousands of routes, each with matches to compile.

A Reading is a generator that pauses after each piece of work, tells how many parts that was (one is about 0.1 ms), and returns the
value. Whoever drives it decides how many parts one turn of the loop takes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

Reading = Generator[int, None, T]

_SMALL: Final = 32
"""So many small things (a name, an address, a number) are one part."""


def at_once(reading: Reading[T]) -> T:
    """The value, read without a pause."""
    while True:
        try:
            next(reading)
        except StopIteration as end:
            found: T = end.value
            return found


def each(messages: Iterable[Any], convert: Callable[[Any], T]) -> Reading[tuple[T, ...]]:
    """Convert all of them, with a pause after each."""
    found: list[T] = []
    for message in messages:
        found.append(convert(message))
        yield 1
    return tuple(found)


def each_read(messages: Iterable[Any], read: Callable[[Any], Reading[T]]) -> Reading[tuple[T, ...]]:
    """Read all of them, with their own pauses and one after each."""
    found: list[T] = []
    for message in messages:
        found.append((yield from read(message)))
        yield 1
    return tuple(found)


def each_small(messages: Iterable[Any], convert: Callable[[Any], T]) -> Reading[list[T]]:
    """Convert all of them, of which some dozens together are one part."""
    found: list[T] = []
    for message in messages:
        found.append(convert(message))
        if not len(found) % _SMALL:
            yield 1
    return found
