"""Which rule of which route a request takes (docs/linkerd/outbound.md, section 7; docs/linkerd/inbound.md, section 6).

The best score wins: host, then what Score says; among equals the earliest route, then rule, then match. Scores are match.py's.
A RouteTable is an index that finds the matches which are worth scoring, so that a hundred routes cost no more than one: it may
name too many, never too few. Expressions for paths are tried together, some hundreds at a time; those for headers and query
parameters are tried one by one, and so are matches that nothing but query parameters tells apart.

The index of ten thousand routes is 150 ms of work, and so it is made in shares (`read_table`), while the policy before it is in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from proxy.core import limits
from proxy.core.log import logger
from proxy.core.loop.effort import Effort, TooCostlyError
from proxy.core.shares import Reading, at_once
from proxy.http.head import RequestHead
from proxy.policy.routes.choices import FEW, PER_PART, Candidate, Choices, Found, Scored, best_of, better, read_choices
from proxy.policy.routes.match import Asked, Everything, HostMatcher, PathMatcher, Score, host_of, matcher
from proxy.policy.routes.pattern import TOGETHER_SIZE, Pattern, Patterns, grouped
from proxy.policy.routes.route import GrpcMatch, HostMatch, HttpMatch

_log: Final = logger(__name__)

_TOGETHER_PARTS: Final = 32
"""What the compilation of expressions that are tried together counts for: 3 ms."""


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


class RouteTable:
    """All routes of one policy; made anew with each policy, by `table_of` or `read_table`."""

    __slots__ = ("only", "_hosts", "_anywhere")

    def __init__(self, only: Found | None, hosts: Hosts | None, anywhere: Paths) -> None:
        self.only: Final = only
        """The rule that every request takes; None if it depends on the request."""
        self._hosts: Final = hosts
        self._anywhere: Final = anywhere

    def find(self, request: RequestHead, effort: Effort | None = None) -> Found | None:
        """The best rule; None if no route matches, or if `effort`, which is the request's, does not suffice to tell."""
        if self.only is not None:
            return self.only
        try:
            return self.find_as(request, request.path, effort or Effort())
        except TooCostlyError as error:
            tell_too_costly(request, error)
            return None

    def find_as(self, request: RequestHead, path: bytes, effort: Effort) -> Found | None:
        """The best rule if the request had this path and query; TooCostlyError if `effort` does not suffice to tell."""
        if self.only is not None:
            return self.only
        asked = Asked(request, path, effort)
        try:
            if self._hosts is not None:
                best = self._hosts.best(asked, host_of(request.authority))
                if best is not None:
                    return best.found
            scored = self._anywhere.best(asked)
        finally:
            effort.rest()
        return scored.candidate.found if scored is not None else None


def tell_too_costly(request: RequestHead, error: TooCostlyError) -> None:
    _log.warning("No route takes a request whose path has %d octets: %s", len(request.path), error)


def table_of(routes: Sequence[Route]) -> RouteTable:
    """The table, made at once."""
    return at_once(read_table(routes))


def read_table(routes: Sequence[Route]) -> Reading[RouteTable]:
    """The table, made in shares."""
    by_host: dict[HostMatch, list[int]] = {}
    candidates: list[list[Candidate]] = []
    anywhere: list[Candidate] = []
    order = 0
    for place, route in enumerate(routes):
        candidates.append((yield from _candidates(place, route, order)))
        order += len(candidates[place])
        for host in dict.fromkeys(HostMatch(one.text.lower(), one.is_suffix) for one in route.hosts):
            by_host.setdefault(host, []).append(place)
        if len(route.hosts) >= PER_PART:
            yield len(route.hosts) // PER_PART
        if not route.hosts:
            anywhere += candidates[place]
    hosts = (yield from _hosts_of(by_host, candidates)) if by_host else None
    return RouteTable(_universal(routes), hosts, (yield from _paths_of(anywhere)))


def _hosts_of(by_host: dict[HostMatch, list[int]], candidates: list[list[Candidate]]) -> Reading[Hosts]:
    """The hosts with their indices. Hosts that the same routes name share one: a route of a thousand hosts and a thousand matches
    would otherwise cost a million.

    Hosts that are named by overlapping sets of routes have the routes that they share once for each set. If that would be
    more than INDEXED_MATCHES, each route has one index instead, and a request looks into those of all routes that name
    its host.
    """
    by_places: dict[tuple[int, ...], Sequence[Paths]] = {tuple(places): () for places in by_host.values()}
    merged = sum(len(candidates[place]) for places in by_places for place in places)
    is_merged = merged <= max(limits.INDEXED_MATCHES, 2 * sum(map(len, candidates)))
    by_route: dict[int, Paths] = {}
    for places in by_places:
        if is_merged or len(places) == 1:
            by_places[places] = ((yield from _paths_of([one for place in places for one in candidates[place]])),)
            continue
        for place in places:
            if place not in by_route:
                by_route[place] = yield from _paths_of(candidates[place])
        by_places[places] = [by_route[place] for place in places]
        yield 1 + len(places) // PER_PART
    hosts: list[Host] = []
    for host, of in by_host.items():
        hosts.append(Host(host, by_places[tuple(of)]))
        if not len(hosts) % PER_PART:
            yield 1
    return Hosts(hosts)


def _universal(routes: Sequence[Route]) -> Found | None:
    if len(routes) != 1 or routes[0].hosts or len(routes[0].rules) != 1:
        return None
    matches = routes[0].rules[0].matches
    if not matches:
        return Found(0, 0, None)
    return Found(0, 0, matches[0]) if len(matches) == 1 and matches[0] == HttpMatch() else None


def _candidates(place: int, route: Route, order: int) -> Reading[list[Candidate]]:
    """`order` is the position of the first candidate."""
    found: list[Candidate] = []
    for rule, one in enumerate(route.rules):
        if not one.matches:
            everything = Everything(route.is_grpc)
            found.append(Candidate(Found(place, rule, None), everything, order + len(found)))
        for match in one.matches:
            found.append(Candidate(Found(place, rule, match), matcher(match), order + len(found)))
            if not found[-1].order % PER_PART:
                yield 1
    return found


class Host:
    """One host pattern of the routes, and the matches under it."""

    __slots__ = ("matcher", "paths")

    def __init__(self, pattern: HostMatch, paths: Sequence[Paths]) -> None:
        self.matcher: Final = HostMatcher(pattern)
        self.paths: Final = paths
        """One index of all routes that name the host, or one of each."""


class Hosts:
    """Routes by the hosts that they name."""

    __slots__ = ("_few", "_exact", "_suffixes", "_lengths")

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._few: Final = hosts if len(hosts) <= FEW else None
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
                for paths in one.paths:
                    found = paths.best(asked)
                    if found is not None:
                        best = found if score > best_score else better(best, found)
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


def _paths_of(candidates: Sequence[Candidate]) -> Reading[Paths]:
    if len(candidates) <= FEW:
        return Paths(candidates)
    others: list[Candidate] = []
    expressions: list[Expression] = []
    exact: dict[bytes, list[Candidate]] = {}
    prefixes: dict[bytes, list[Candidate]] = {}
    calls: dict[tuple[bytes, bytes], list[Candidate]] = {}
    for place, one in enumerate(candidates):
        if not place % PER_PART:
            yield 1
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
    together: list[Expressions] = []
    if len(expressions) > FEW:
        small = [one for one in expressions if one.pattern.size <= TOGETHER_SIZE]
        expressions = [one for one in expressions if one.pattern.size > TOGETHER_SIZE]
        for some in grouped([one.pattern.size for one in small]):
            together.append(Expressions(small[some]))
            yield _TOGETHER_PARTS
    others += [one.candidate for one in expressions]
    return Paths(
        (),
        (yield from read_choices(others)),
        (yield from _choices_by(exact)),
        (yield from _choices_by(prefixes)),
        (yield from _choices_by(calls)),
        together,
    )


K = TypeVar("K")


def _choices_by(candidates: dict[K, list[Candidate]]) -> Reading[dict[K, Choices]]:
    found: dict[K, Choices] = {}
    for key, of in candidates.items():
        found[key] = yield from read_choices(of)
        if not len(found) % PER_PART:
            yield 1
    return found


class Paths:
    """Matches of one host by their paths, or by service and method."""

    __slots__ = ("_few", "_others", "_exact", "_prefixes", "_lengths", "_calls", "_expressions")

    def __init__(
        self,
        few: Sequence[Candidate],
        others: Choices | None = None,
        exact: dict[bytes, Choices] | None = None,
        prefixes: dict[bytes, Choices] | None = None,
        calls: dict[tuple[bytes, bytes], Choices] | None = None,
        expressions: Sequence[Expressions] = (),
    ) -> None:
        """Either a few matches, each of which is scored, or the others."""
        self._few: Final = few if others is None else None
        self._others: Final = others or Choices(())
        """Matches for any path, or for paths that one of a few or large expressions covers."""
        self._exact: Final = exact or {}
        self._prefixes: Final = prefixes or {}
        self._lengths: Final = sorted({len(path) for path in self._prefixes})
        self._calls: Final = calls or {}
        self._expressions: Final = expressions

    def best(self, asked: Asked) -> Scored | None:
        if self._few is not None:
            return best_of(self._few, asked)
        best = self._others.best(asked)
        for expressions in self._expressions:
            best = better(best, expressions.best(asked))
        path = asked.path
        exact = self._exact.get(path)
        if exact is not None:
            best = better(best, exact.best(asked))
        for length in self._lengths:
            if length > len(path):
                break
            prefix = self._prefixes.get(path[:length])
            if prefix is not None:
                best = better(best, prefix.best(asked))
        if self._calls:
            best = better(best, self._best_call(asked))
        return best

    def _best_call(self, asked: Asked) -> Scored | None:
        rpc = asked.rpc
        if rpc is None:
            return None
        best: Scored | None = None
        for call in {rpc, (rpc[0], b""), (b"", rpc[1]), (b"", b"")}:
            found = self._calls.get(call)
            if found is not None:
                best = better(best, found.best(asked))
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
        return best_of([candidates[place] for place in self._patterns.likely(asked.path, asked.effort)], asked)
