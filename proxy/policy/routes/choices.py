"""Choices: matches that differ only in headers, the method and query parameters, and which of several candidates is the best.

Among equal scores the first in the table counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from proxy.core.shares import Reading
from proxy.policy.routes.match import Asked, Matcher, Score
from proxy.policy.routes.route import GrpcMatch, HttpMatch

FEW: Final = 4
"""Up to this many matches it is faster to score each than to look them up."""

_SCORE_STEPS: Final = 40
"""What it costs to score one, beside what it looks at, in steps of an Effort."""

PER_PART: Final = 16
"""Matches, hosts or routes that are put in their places in 0.1 ms."""


class Found(NamedTuple):
    """The position of the rule, and the best of its matches; None if the rule has no matches and takes everything."""

    route: int
    rule: int
    match: HttpMatch | GrpcMatch | None


class Candidate:
    """One match of one rule."""

    __slots__ = ("found", "matcher", "order")

    def __init__(self, found: Found, matcher_: Matcher, order: int) -> None:
        self.found: Final = found
        self.matcher: Final = matcher_
        self.order: Final = order
        """Its position in the table: among equal scores the first counts."""


class Scored(NamedTuple):
    score: Score
    candidate: Candidate


def better(one: Scored | None, other: Scored | None) -> Scored | None:
    if one is None or other is None:
        return one or other
    if one.score != other.score:
        return one if one.score > other.score else other
    return one if one.candidate.order <= other.candidate.order else other


def best_of(candidates: Sequence[Candidate], asked: Asked) -> Scored | None:
    best: Candidate | None = None
    best_score: Score = ()
    effort = asked.effort
    for one in candidates:
        effort.spend(_SCORE_STEPS, "one of many matches")
        score = one.matcher.score(asked)
        if score is not None:
            if best is None or score > best_score or (score == best_score and one.order < best.order):
                best = one
                best_score = score
    return Scored(best_score, best) if best is not None else None


def read_choices(candidates: Sequence[Candidate]) -> Reading[Choices]:
    if len(candidates) <= FEW:
        return Choices(candidates)
    others: list[Candidate] = []
    methods: dict[bytes, list[Candidate]] = {}
    headers: dict[bytes, dict[bytes, list[Candidate]]] = {}
    for place, one in enumerate(candidates):
        if not place % PER_PART:
            yield 1
        match = one.found.match
        header = next((header for header in match.headers if header.exact is not None), None) if match else None
        if header is not None and header.exact is not None:
            values = headers.setdefault(header.name.lower().encode(), {})
            values.setdefault(header.exact, []).append(one)
        elif isinstance(match, HttpMatch) and match.method:
            methods.setdefault(match.method.encode(), []).append(one)
        else:
            others.append(one)
    return Choices((), others, methods, headers)


class Choices:
    """Matches that differ only in headers, the method and query parameters."""

    __slots__ = ("_few", "_others", "_methods", "_headers")

    def __init__(
        self,
        few: Sequence[Candidate],
        others: Sequence[Candidate] | None = None,
        methods: dict[bytes, list[Candidate]] | None = None,
        headers: dict[bytes, dict[bytes, list[Candidate]]] | None = None,
    ) -> None:
        """Either a few matches, each of which is scored, or the others."""
        self._few: Final = few if others is None else None
        self._others: Final = others or ()
        self._methods: Final = methods or {}
        self._headers: Final = headers or {}
        """Candidates by the name and the value of the first header that they match exactly."""

    def best(self, asked: Asked) -> Scored | None:
        if self._few is not None:
            return best_of(self._few, asked)
        best = best_of(self._others, asked)
        best = better(best, best_of(self._methods.get(asked.method, ()), asked))
        for name, values in self._headers.items():
            for value in asked.values(name):
                best = better(best, best_of(values.get(value, ()), asked))
        return best
