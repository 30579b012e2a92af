"""Sponson itself, interpreted and compiled, under its own embedded control plane."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bench.backend import Backend
from bench.peers.candidate import Candidate
from bench.process import BenchError, Stable

_ROOT = Path(__file__).parents[2]


class Build(NamedTuple):
    name: str
    program: Path
    remedy: str


INTERPRETED = Build("sponson", _ROOT / ".venv/bin/sponson", "make test")
COMPILED = Build("sponson_compiled", _ROOT / ".venv-compiled/bin/sponson", "make compile")


def start(build: Build, stable: Stable, backend: Backend, shape: str) -> Candidate | None:
    if not build.program.exists():
        raise BenchError(f"{build.program.relative_to(_ROOT)} does not exist ({build.remedy})")
    return None
