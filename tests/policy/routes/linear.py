"""Route matching as specified: every match of every rule of every route is scored, and the best wins.

It is slow, plain and independent of the product's: what policy/routes/table.py finds must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.http.head import RequestHead
from proxy.http.headers import Field
from proxy.policy.routes.choices import Found
from proxy.policy.routes.route import GrpcMatch, HostMatch, HttpMatch, PathMatch, ValueMatch
from proxy.policy.routes.table import Route

Score = tuple[int, ...]
"""Compared lexicographically. HTTP: path length, header matches, query matches, method match; gRPC: service length,
method length, header matches."""

_NO_HOST: Final[Score] = (0, 0)
_EXACT: Final = 2
_SUFFIX: Final = 1


def find(routes: Sequence[Route], request: RequestHead) -> Found | None:
    """The best rule; None if no route matches."""
    best: Found | None = None
    best_score: Score = ()
    for place, route in enumerate(routes):
        host_score = _NO_HOST
        if route.hosts:
            found_host = best_host(route.hosts, host_of(request.authority))
            if found_host is None:
                continue
            host_score = found_host
        for rule, one in enumerate(route.rules):
            found = _best_match(one.matches, route.is_grpc, request)
            if found is not None:
                score = host_score + found[0]
                if best is None or score > best_score:
                    best = Found(place, rule, found[1])
                    best_score = score
    return best


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
    """Whether some value of that header fits; an expression matches visible ASCII only."""
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
    # As in Linkerd, further segments behind `/service/method` are not looked at.
    if len(parts) < 3 or parts[0]:
        return None
    service, method = match.service.encode(), match.method.encode()
    if (service and service != parts[1]) or (method and method != parts[2]):
        return None
    if not all(match_header(header, request.fields) for header in match.headers):
        return None
    return len(service), len(method), len(match.headers)
