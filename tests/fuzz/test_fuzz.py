"""Every target on its corpus and on some thousand mutations of it, the same in every run; `make fuzz` runs for longer."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

SEED = 20


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_corpus(target: Target) -> None:
    assert target.seeds
    for data in target.corpus():
        try:
            target.check(data)
        except Exception as error:
            raise AssertionError(f"input {data!r}") from error


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_mutations(target: Target) -> None:
    for data in islice(target.inputs(SEED), target.runs):
        try:
            target.check(data)
        except Exception as error:
            raise AssertionError(f"input {data!r}") from error
