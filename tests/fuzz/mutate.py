"""Mutations from a seeded generator: bytes are flipped, cut, repeated, replaced by tokens, and inputs are spliced."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

_NUMBERS: Final = (0, 1, 9, 10, 13, 32, 127, 128, 254, 255)
_MAX_BYTES: Final = 20_000


Shape = Callable[[random.Random, bytes], bytes]
"""A mutation that keeps the form of a language."""


def mutations(
    corpus: Sequence[bytes], tokens: Sequence[bytes], seed: int, shape: Shape | None = None
) -> Iterator[bytes]:
    """Endless mutations, the same for the same arguments. With a `shape`, every second one is made by it."""
    dice = random.Random(seed)
    while True:
        data = dice.choice(corpus)
        for _ in range(dice.choice((1, 1, 1, 2, 3, 5, 8))):
            if shape is not None and dice.randrange(2):
                data = shape(dice, data)
            else:
                data = _mutated(dice, data, corpus, tokens)
        yield data[:_MAX_BYTES]


def reframed(dice: random.Random, data: bytes) -> bytes:
    """HTTP/2 frames moved, dropped, repeated, or one of them changed without changing its length."""
    frames = _frames(data)
    if not frames:
        return data
    index = dice.randrange(len(frames))
    one = frames[index]
    kind = dice.randrange(7)
    if kind == 0:
        del frames[index]
    elif kind == 1:
        frames.insert(dice.randrange(len(frames) + 1), one)
    elif kind == 2:
        frames.insert(dice.randrange(len(frames)), frames.pop(index))
    else:
        head, payload = bytearray(one[3:9]), one[9:]
        if kind == 3:
            head[1] ^= 1 << dice.choice((0, 2, 3, 5))
        elif kind == 4:
            head[5] = dice.choice((0, 1, 2, 3, 5, 7, 9))
        elif kind == 5:
            head[0] = dice.randrange(11)
        else:
            payload = _mutated(dice, payload, [payload], ())
        frames[index] = len(payload).to_bytes(3, "big") + head + payload
    return b"".join(frames)


def _frames(data: bytes) -> list[bytes]:
    """The frames, by their lengths; an incomplete one at the end is dropped."""
    found = []
    while len(data) >= 9 and len(data) >= (size := 9 + int.from_bytes(data[:3], "big")):
        found.append(data[:size])
        data = data[size:]
    return found


def _mutated(dice: random.Random, data: bytes, corpus: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    start = dice.randrange(len(data) + 1)
    end = min(len(data), start + dice.choice((0, 1, 1, 2, 4, 9, 30)))
    kind = dice.randrange(8 if tokens else 7)
    if kind == 0:
        return data[:start] + bytes((dice.choice(_NUMBERS),)) + data[start + 1 :]
    if kind == 1 and data:
        index = dice.randrange(len(data))
        return data[:index] + bytes((data[index] ^ 1 << dice.randrange(8),)) + data[index + 1 :]
    if kind == 2:
        return data[:start] + data[end:]
    if kind == 3:
        return data[:start] + data[start:end] * dice.choice((2, 3, 40)) + data[end:]
    if kind == 4:
        return data[:start] + dice.randbytes(dice.choice((1, 2, 8))) + data[end:]
    if kind == 5:
        other = dice.choice(corpus)
        return data[:start] + other[dice.randrange(len(other) + 1) :]
    if kind == 6:
        return data[:start]
    if not tokens:
        return data
    return data[:start] + dice.choice(tokens) + data[end if dice.randrange(2) else start :]
