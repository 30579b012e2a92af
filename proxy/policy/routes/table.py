"""Which rule of which route a request takes (docs/linkerd/outbound.md, section 7; docs/linkerd/inbound.md, section 6).

The best score wins: host, then what Score says; among equals the earliest route, then rule, then match. Scores are match.py's.
A RouteTable is an index that finds the matches which are worth scoring, so that a hundred routes cost no more than one: it may
name too many, never too few. Expressions for paths are tried together; those for headers and query parameters are tried one
by one, and so are matches that nothing but query parameters tells apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from proxy.http.head import RequestHead
from proxy.policy.routes.match import Asked, Everything, HostMatcher, Matcher, PathMatcher, Score, host_of, matcher
from proxy.policy.routes.pattern import Pattern, Patterns
from proxy.policy.routes.route import GrpcMatch, HostMatch, HttpMatch

_FEW: Final = 4
"""Up to this many matches it is faster to score each than to look them up."""


class Rule(Protocol):
    @property
    def matches(self) -> tuple[HttpMatch | GrpcMatch, ...]: ...


class Route(Protocol):
    @property
    def hosts(self) -> tuple[HostMatch, ...]: ...

    @property
    def rules(self) -> Sequence[Rule]: ...

    @property
    def is_grpc(self) -> bool: ...


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


class RouteTable:
    """All routes of one policy; made anew with each policy."""

    __slots__ = ("only", "_hosts", "_anywhere")

    def __init__(self, routes: Sequence[Route]) -> None:
        self.only: Final = _universal(routes)
        """The rule that every request takes; None if it depends on the request."""
        by_host: dict[HostMatch, list[int]] = {}
        candidates: list[list[Candidate]] = []
        anywhere: list[Candidate] = []
        order = 0
        for place, route in enumerate(routes):
            candidates.append(_candidates(place, route, order))
            order += len(candidates[place])
            for host in dict.fromkeys(HostMatch(one.text.lower(), one.is_suffix) for one in route.hosts):
                by_host.setdefault(host, []).append(place)
            if not route.hosts:
                anywhere += candidates[place]
        self._hosts: Final = Hosts(_paths_by_host(by_host, candidates)) if by_host else None
        self._anywhere: Final = Paths(anywhere)

    def find(self, request: RequestHead) -> Found | None:
        """The best rule; None if no route matches."""
        return self.only or self.find_as(request, request.path)

    def find_as(self, request: RequestHead, path: bytes) -> Found | None:
        """What `find` would return if the request had this path and query."""
        if self.only is not None:
            return self.only
        asked = Asked(request, path)
        if self._hosts is not None:
            best = self._hosts.best(asked, host_of(request.authority))
            if best is not None:
                return best.found
        scored = self._anywhere.best(asked)
        return scored.candidate.found if scored is not None else None


def _paths_by_host(by_host: dict[HostMatch, list[int]], candidates: list[list[Candidate]]) -> dict[HostMatch, Paths]:
    """The index of each host. Hosts that the same routes name share one: a route of a thousand hosts and a thousand matches
    would otherwise cost a million.
    """
    by_places: dict[tuple[int, ...], Paths] = {}
    found: dict[HostMatch, Paths] = {}
    for host, places in by_host.items():
        key = tuple(places)
        paths = by_places.get(key)
        if paths is None:
            paths = by_places[key] = Paths([one for place in places for one in candidates[place]])
        found[host] = paths
    return found


def _universal(routes: Sequence[Route]) -> Found | None:
    if len(routes) != 1 or routes[0].hosts or len(routes[0].rules) != 1:
        return None
    matches = routes[0].rules[0].matches
    if not matches:
        return Found(0, 0, None)
    return Found(0, 0, matches[0]) if len(matches) == 1 and matches[0] == HttpMatch() else None


def _candidates(place: int, route: Route, order: int) -> list[Candidate]:
    """`order` is the position of the first candidate."""
    found: list[Candidate] = []
    for rule, one in enumerate(route.rules):
        if not one.matches:
            everything = Everything(route.is_grpc)
            found.append(Candidate(Found(place, rule, None), everything, order + len(found)))
        for match in one.matches:
            found.append(Candidate(Found(place, rule, match), matcher(match), order + len(found)))
    return found


class Scored(NamedTuple):
    score: Score
    candidate: Candidate


def _better(one: Scored | None, other: Scored | None) -> Scored | None:
    if one is None or other is None:
        return one or other
    if one.score != other.score:
        return one if one.score > other.score else other
    return one if one.candidate.order <= other.candidate.order else other


def _best(candidates: Iterable[Candidate], asked: Asked) -> Scored | None:
    best: Candidate | None = None
    best_score: Score = ()
    for one in candidates:
        score = one.matcher.score(asked)
        if score is not None:
            if best is None or score > best_score or (score == best_score and one.order < best.order):
                best = one
                best_score = score
    return Scored(best_score, best) if best is not None else None


class Host:
    """One host pattern of the routes, and the matches under it."""

    __slots__ = ("matcher", "paths")

    def __init__(self, pattern: HostMatch, paths: Paths) -> None:
        self.matcher: Final = HostMatcher(pattern)
        self.paths: Final = paths


class Hosts:
    """Routes by the hosts that they name."""

    __slots__ = ("_few", "_exact", "_suffixes", "_lengths")

    def __init__(self, by_host: dict[HostMatch, Paths]) -> None:
        hosts = [Host(pattern, paths) for pattern, paths in by_host.items()]
        self._few: Final = hosts if len(hosts) <= _FEW else None
        self._exact: Final = {one.matcher.text: one for one in hosts if not one.matcher.is_suffix}
        self._suffixes: Final = {one.matcher.text: one for one in hosts if one.matcher.is_suffix}
        self._lengths: Final = sorted({len(text) for text in self._suffixes})

    def best(self, asked: Asked, host: str) -> Candidate | None:
        """The best match among the routes for the request's host."""
        best: Scored | None = None
        best_score: Score = ()
        for one in self._few or self._likely(host):
            score = one.matcher.score
            if score >= best_score and one.matcher.fits(host):
                found = one.paths.best(asked)
                if found is not None:
                    best = found if score > best_score else _better(best, found)
                    best_score = score
        return best.candidate if best is not None else None

    def _likely(self, host: str) -> list[Host]:
        """Hosts that may match, by the index; every host that does match is among them."""
        names = (host, host[:-1]) if host.endswith(".") else (host,)
        likely: list[Host] = []
        for name in names:
            exact = self._exact.get(name)
            if exact is not None:
                likely.append(exact)
            for length in self._lengths:
                if length >= len(name):
                    break
                suffix = self._suffixes.get(name[len(name) - length :])
                if suffix is not None:
                    likely.append(suffix)
        return likely


class Paths:
    """Matches of one host by their paths, or by service and method."""

    __slots__ = ("_few", "_others", "_exact", "_prefixes", "_lengths", "_calls", "_expressions")

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._few: Final = candidates if len(candidates) <= _FEW else None
        others: list[Candidate] = []
        expressions: list[Expression] = []
        exact: dict[bytes, list[Candidate]] = {}
        prefixes: dict[bytes, list[Candidate]] = {}
        calls: dict[tuple[bytes, bytes], list[Candidate]] = {}
        for one in candidates:
            match = one.found.match
            if isinstance(match, GrpcMatch):
                calls.setdefault((match.service.encode(), match.method.encode()), []).append(one)
                continue
            path = PathMatcher(match.path) if match is not None else None
            if path is not None and path.exact is not None:
                exact.setdefault(path.exact, []).append(one)
            elif path is not None and path.prefix is not None:
                prefixes.setdefault(path.prefix, []).append(one)
            elif path is not None and path.regex is not None:
                expressions.append(Expression(path.regex, one))
            else:
                others.append(one)
        if len(expressions) <= _FEW:
            others += [one.candidate for one in expressions]
        self._expressions: Final = Expressions(expressions) if len(expressions) > _FEW else None
        self._others: Final = Choices(others)
        """Matches for any path, or for paths that one of a few expressions covers."""
        self._exact: Final = {path: Choices(of) for path, of in exact.items()}
        self._prefixes: Final = {path: Choices(of) for path, of in prefixes.items()}
        self._lengths: Final = sorted({len(path) for path in prefixes})
        self._calls: Final = {call: Choices(of) for call, of in calls.items()}

    def best(self, asked: Asked) -> Scored | None:
        if self._few is not None:
            return _best(self._few, asked)
        best = self._others.best(asked)
        expressions = self._expressions
        if expressions is not None:
            best = _better(best, expressions.best(asked))
        path = asked.path
        exact = self._exact.get(path)
        if exact is not None:
            best = _better(best, exact.best(asked))
        for length in self._lengths:
            if length > len(path):
                break
            prefix = self._prefixes.get(path[:length])
            if prefix is not None:
                best = _better(best, prefix.best(asked))
        if self._calls:
            best = _better(best, self._best_call(asked))
        return best

    def _best_call(self, asked: Asked) -> Scored | None:
        rpc = asked.rpc
        if rpc is None:
            return None
        best: Scored | None = None
        for call in {rpc, (rpc[0], b""), (b"", rpc[1]), (b"", b"")}:
            found = self._calls.get(call)
            if found is not None:
                best = _better(best, found.best(asked))
        return best


class Expression(NamedTuple):
    pattern: Pattern
    candidate: Candidate


class Expressions:
    """Matches for paths that an expression covers: those whose expression may cover the path are scored."""

    __slots__ = ("_patterns", "_candidates")

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self._patterns: Final = Patterns([one.pattern for one in expressions])
        self._candidates: Final = [one.candidate for one in expressions]

    def best(self, asked: Asked) -> Scored | None:
        candidates = self._candidates
        return _best([candidates[place] for place in self._patterns.likely(asked.path)], asked)


class Choices:
    """Matches that differ only in headers, the method and query parameters."""

    __slots__ = ("_all", "_others", "_methods", "_headers")

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._all: Final = candidates if len(candidates) <= _FEW else None
        self._others: Final[list[Candidate]] = []
        self._methods: Final[dict[bytes, list[Candidate]]] = {}
        self._headers: Final[dict[bytes, dict[bytes, list[Candidate]]]] = {}
        """Candidates by the name and the value of the first header that they match exactly."""
        for one in candidates if self._all is None else ():
            match = one.found.match
            header = next((header for header in match.headers if header.exact is not None), None) if match else None
            if header is not None and header.exact is not None:
                values = self._headers.setdefault(header.name.lower().encode(), {})
                values.setdefault(header.exact, []).append(one)
            elif isinstance(match, HttpMatch) and match.method:
                self._methods.setdefault(match.method.encode(), []).append(one)
            else:
                self._others.append(one)

    def best(self, asked: Asked) -> Scored | None:
        if self._all is not None:
            return _best(self._all, asked)
        best = _best(self._others, asked)
        best = _better(best, _best(self._methods.get(asked.method, ()), asked))
        for name, values in self._headers.items():
            for value in asked.values(name):
                best = _better(best, _best(values.get(value, ()), asked))
        return best
