"""Queries on a metrics page: one sample by its name and some of its labels, or all of a family."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    """In the order in which they are printed."""
    value: float


def samples(page: str, name: str = "", **labels: str) -> Iterator[Sample]:
    """The samples of this name, or of all names, that have these labels."""
    for found, text, value in _LINE.findall(page):
        if name in ("", found):
            sample = Sample(found, dict(_LABEL.findall(text)), float(value))
            if labels.items() <= sample.labels.items():
                yield sample


def value(page: str, name: str, **labels: str) -> float:
    """The sum of the samples that have these labels; 0 if there is none."""
    return sum(sample.value for sample in samples(page, name, **labels))


def by_label(page: str, name: str, label: str, **labels: str) -> dict[str, float]:
    """The values of a family that are not 0, by this label."""
    found: dict[str, float] = {}
    for sample in samples(page, name, **labels):
        if sample.value:
            found[sample.labels[label]] = found.get(sample.labels[label], 0) + sample.value
    return found
