"""Which rule of which route a request takes (docs/linkerd/outbound.md, section 7; docs/linkerd/inbound.md, section 6).

Pure. What does not depend on the request is made ready when a RouteTable
is built; a table whose one rule matches everything answers without a look at
the request. The best score wins, and among equal scores the earliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from proxy.http.head import RequestHead
from proxy.http.headers import Field
from proxy.policy.route import GrpcMatch, HostMatch, HttpMatch, PathMatch, ValueMatch

Score = tuple[int, ...]
"""Compared lexicographically. HTTP: path length, header matches, query matches, method match; gRPC: service length,
method length, header matches."""

_NO_HOST: Final[Score] = (0, 0)
_EXACT: Final = 2
_SUFFIX: Final = 1


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
    """Where the rule stands, and which of its matches was the best; None if it has none and so matches everything."""

    route: int
    rule: int
    match: HttpMatch | GrpcMatch | None


class RouteTable:
    """All routes of one policy; made anew with each policy."""

    __slots__ = ("only", "_routes")

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes: list[tuple[tuple[HostMatch, ...], list[tuple[Sequence[HttpMatch | GrpcMatch], bool]]]] = [
            (route.hosts, [(rule.matches, route.is_grpc) for rule in route.rules]) for route in routes
        ]
        self.only: Found | None = None
        """What every request finds, whatever it says; None if it depends on the request."""
        if len(routes) == 1 and not routes[0].hosts and len(routes[0].rules) == 1:
            self.only = _universal(routes[0].rules[0].matches)

    def find(self, request: RequestHead) -> Found | None:
        """The best rule; None if no route matches."""
        if self.only is not None:
            return self.only
        best: Found | None = None
        best_score: Score = ()
        for place, (hosts, rules) in enumerate(self._routes):
            host_score = _NO_HOST
            if hosts:
                found_host = best_host(hosts, host_of(request.authority))
                if found_host is None:
                    continue
                host_score = found_host
            for rule, (matches, is_grpc) in enumerate(rules):
                found = _best_match(matches, is_grpc, request)
                if found is not None:
                    score = host_score + found[0]
                    if best is None or score > best_score:
                        best = Found(place, rule, found[1])
                        best_score = score
        return best


def _universal(matches: Sequence[HttpMatch | GrpcMatch]) -> Found | None:
    if not matches:
        return Found(0, 0, None)
    for match in matches:
        if match == HttpMatch():
            return Found(0, 0, match) if len(matches) == 1 else None
    return None


def _best_match(
    matches: Sequence[HttpMatch | GrpcMatch], is_grpc: bool, request: RequestHead
) -> tuple[Score, HttpMatch | GrpcMatch | None] | None:
    if not matches:
        return ((0, 0, 0) if is_grpc else (1, 0, 0, 0)), None
    best: tuple[Score, HttpMatch | GrpcMatch | None] | None = None
    for match in matches:
        score = match_grpc(match, request) if isinstance(match, GrpcMatch) else match_http(match, request)
        if score is not None and (best is None or score > best[0]):
            best = score, match
    return best


# ---- hosts


def host_of(authority: bytes) -> str:
    """The host of an authority in lower case, without userinfo and port; an IPv6 address keeps its brackets."""
    text = authority.rpartition(b"@")[2].decode("latin-1").lower()
    if text.startswith("["):
        return text[: text.find("]") + 1] or text
    return text.partition(":")[0]


def best_host(hosts: Sequence[HostMatch], host: str) -> Score | None:
    """The best (kind, length) by which a host matches; exact before suffix, longer before shorter."""
    scores = [score for pattern in hosts if (score := match_host(pattern, host)) is not None]
    return max(scores) if scores else None


def match_host(pattern: HostMatch, host: str) -> Score | None:
    """`host` is in lower case; empty never matches. A trailing dot of it counts only where the pattern has one."""
    text = pattern.text.lower()
    if not host:
        return None
    if not text.endswith("."):
        host = host.removesuffix(".")
    if not pattern.is_suffix:
        return (_EXACT, len(text)) if host == text else None
    return (_SUFFIX, len(text) + 1) if host.endswith("." + text) else None


# ---- HTTP


def match_http(match: HttpMatch, request: RequestHead) -> Score | None:
    if match.method and match.method.encode() != request.method:
        return None
    path, _, query = request.path.partition(b"?")
    length = match_path(match.path, path)
    if length is None or not all(match_header(header, request.fields) for header in match.headers):
        return None
    if match.query_params:
        pairs = query_pairs(query)
        if not all(match_query(param, pairs) for param in match.query_params):
            return None
    return length, len(match.headers), len(match.query_params), 1 if match.method else 0


def match_path(match: PathMatch, path: bytes) -> int | None:
    """How many characters of the path (without its query) matched; None if it does not."""
    if match.exact is not None:
        return len(path) if match.exact.encode() == path else None
    if match.regex is not None:
        return len(path) if match.regex.covers(path) else None
    prefix = match.prefix
    if prefix is None or prefix == "/":
        return 1
    start = prefix.encode().rstrip(b"/")
    trimmed = path.rstrip(b"/")
    if trimmed == start or trimmed.startswith(start + b"/"):
        return len(start)
    return None


def match_header(match: ValueMatch, fields: Sequence[Field]) -> bool:
    """Some value of that header fits; an expression sees visible ASCII only."""
    name = match.name.lower().encode()
    for field in fields:
        if field.name == name:
            if match.regex is None:
                if field.value == match.exact:
                    return True
            elif field.value.isascii() and match.regex.covers(field.value):
                return True
    return False


def query_pairs(query: bytes) -> list[tuple[bytes, bytes]]:
    """Form-decoded names and values in order; a missing `=` means an empty value."""
    pairs = []
    for part in query.split(b"&"):
        if part:
            name, _, value = part.replace(b"+", b" ").partition(b"=")
            pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return pairs


def match_query(match: ValueMatch, pairs: Sequence[tuple[bytes, bytes]]) -> bool:
    name = match.name.encode()
    if match.regex is None:
        return (name, match.exact) in pairs
    return any(one == name and match.regex.covers(value) for one, value in pairs)


# ---- gRPC


def match_grpc(match: GrpcMatch, request: RequestHead) -> Score | None:
    if request.method != b"POST":
        return None
    parts = request.path.partition(b"?")[0].split(b"/")
    # Behind `/service/method` more segments are not looked at, as upstream.
    if len(parts) < 3 or parts[0]:
        return None
    service, method = match.service.encode(), match.method.encode()
    if (service and service != parts[1]) or (method and method != parts[2]):
        return None
    if not all(match_header(header, request.fields) for header in match.headers):
        return None
    return len(service), len(method), len(match.headers)
