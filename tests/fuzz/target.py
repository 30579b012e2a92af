"""Target: one reader of hostile bytes, the exceptions that it may raise, and seeds to begin with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz.mutate import Shape, mutations

CORPUS: Final = Path(__file__).parent / "corpus"
"""Inputs that failed once, one file each in their target's folder; they are kept."""


@dataclass(frozen=True)
class Target:
    name: str
    run: Callable[[bytes], None]
    """Reads one input and asserts what must hold; raises nothing but `allowed`."""
    allowed: tuple[type[Exception], ...]
    """The exceptions by which the reader refuses an input; it may raise no other."""
    seeds: tuple[bytes, ...]
    tokens: tuple[bytes, ...] = ()
    """Pieces of the language, for mutations that are meaningful."""
    shape: Shape | None = None
    runs: int = 3000
    """How many mutations the suite runs."""

    def inputs(self, seed: int) -> Iterator[bytes]:
        """Endless mutations of the corpus."""
        return mutations(self.corpus(), self.tokens, seed, self.shape)

    def corpus(self) -> list[bytes]:
        folder = CORPUS / self.name
        return [*self.seeds, *(path.read_bytes() for path in sorted(folder.glob("*")))]

    def check(self, data: bytes) -> None:
        """Run one input; AssertionError, or an exception that is not allowed, is a find."""
        with no_faults():
            try:
                self.run(data)
            except self.allowed:
                pass


@contextmanager
def no_faults() -> Iterator[None]:
    """An unexpected exception that a codec caught at its edge is a find too."""
    logger = logging.getLogger("proxy.core.failure.errors")
    faults = _Faults()
    logger.addHandler(faults)
    try:
        yield
    finally:
        logger.removeHandler(faults)
    assert not faults.texts, faults.texts[0]


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))
