"""Whether a request fits a match, and how well (docs/linkerd/outbound.md, section 7; docs/linkerd/inbound.md, section 6).

What does not depend on the request is prepared when a policy arrives: a match becomes a Matcher, which scores requests.
Scores are compared lexicographically; table.py finds the rule with the best one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.core.loop.effort import Effort
from proxy.http.head import RequestHead
from proxy.http.headers import Field
from proxy.policy.routes.pattern import Pattern
from proxy.policy.routes.route import GrpcMatch, HostMatch, HttpMatch, PathMatch, ValueMatch

Score = tuple[int, ...]
"""HTTP: path length, header matches, query matches, method match; gRPC: service length, method length, header matches."""

_PAIR_STEPS: Final = 200
"""What a pair of the query costs to be read, 1 µs, in steps of an Effort; below what a name costs to be compared."""
_NAME_STEPS: Final = 8

_EXACT: Final = 2
_SUFFIX: Final = 1


class Asked:
    """The parts of one request that matches look at, while it is matched."""

    __slots__ = ("method", "path", "fields", "effort", "_query", "_pairs", "_rpc")

    def __init__(self, request: RequestHead, path: bytes, effort: Effort) -> None:
        """`path` has the query; it may be another one than the request's. `effort` is what matching may cost."""
        self.effort: Final = effort
        self.method: Final = request.method
        self.fields: Final = request.fields
        self.path, _, self._query = path.partition(b"?")
        self._pairs: list[tuple[bytes, bytes]] | None = None
        self._rpc: tuple[bytes, bytes] | None = None

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Names and values of the query."""
        if self._pairs is None:
            self.effort.spend(_PAIR_STEPS * self._query.count(b"&"), "the query")
            self._pairs = query_pairs(self._query)
        return self._pairs

    @property
    def rpc(self) -> tuple[bytes, bytes] | None:
        """Service and method of a gRPC call; None if the request is not one."""
        if self._rpc is None and self.method == b"POST":
            parts = self.path.split(b"/", 3)
            # Behind `/service/method` more segments are not looked at, as upstream.
            if len(parts) >= 3 and not parts[0]:
                self._rpc = parts[1], parts[2]
        return self._rpc

    def values(self, name: bytes) -> list[bytes]:
        """The values of the header of this name, which is in lower case."""
        return [field.value for field in self.fields if field.name == name]


class Matcher:
    """One match of a rule."""

    __slots__ = ()

    def score(self, asked: Asked) -> Score | None:
        """None if the request does not fit."""
        raise NotImplementedError


class Everything(Matcher):
    """Stands for the matches of a rule that has none: it has the lowest score that a match of this kind of route can
    have.
    """

    __slots__ = ("_score",)

    def __init__(self, is_grpc: bool) -> None:
        self._score: Final[Score] = (0, 0, 0) if is_grpc else (1, 0, 0, 0)

    def score(self, asked: Asked) -> Score | None:
        return self._score


class HttpMatcher(Matcher):
    __slots__ = ("_method", "_path", "_headers", "_params")

    def __init__(self, match: HttpMatch) -> None:
        self._method: Final = match.method.encode()
        self._path: Final = PathMatcher(match.path)
        self._headers: Final = [ValueMatcher(one.name.lower(), one) for one in match.headers]
        self._params: Final = [ValueMatcher(one.name, one) for one in match.query_params]

    def score(self, asked: Asked) -> Score | None:
        if self._method and self._method != asked.method:
            return None
        length = self._path.length(asked.path, asked.effort)
        if length < 0:
            return None
        for header in self._headers:
            if not header.fits_field(asked.fields, asked.effort):
                return None
        for param in self._params:
            if not param.fits_pair(asked.pairs, asked.effort):
                return None
        return length, len(self._headers), len(self._params), 1 if self._method else 0


class GrpcMatcher(Matcher):
    __slots__ = ("_service", "_method", "_headers")

    def __init__(self, match: GrpcMatch) -> None:
        self._service: Final = match.service.encode()
        self._method: Final = match.method.encode()
        self._headers: Final = [ValueMatcher(one.name.lower(), one) for one in match.headers]

    def score(self, asked: Asked) -> Score | None:
        rpc = asked.rpc
        if rpc is None:
            return None
        service, method = self._service, self._method
        if (service and service != rpc[0]) or (method and method != rpc[1]):
            return None
        for header in self._headers:
            if not header.fits_field(asked.fields, asked.effort):
                return None
        return len(service), len(method), len(self._headers)


def matcher(match: HttpMatch | GrpcMatch) -> Matcher:
    return HttpMatcher(match) if isinstance(match, HttpMatch) else GrpcMatcher(match)


# ---- hosts


def host_of(authority: bytes) -> str:
    """The host of an authority in lower case, without userinfo and port; an IPv6 address keeps its brackets."""
    text = authority.rpartition(b"@")[2].decode("latin-1").lower()
    if text.startswith("["):
        return text[: text.find("]") + 1] or text
    return text.partition(":")[0]


class HostMatcher:
    """A host pattern. Exact comes before suffix and longer before shorter, so the score is the pattern's own."""

    __slots__ = ("text", "is_suffix", "score", "_is_absolute", "_end")

    def __init__(self, pattern: HostMatch) -> None:
        self.text: Final = pattern.text.lower()
        self.is_suffix: Final = pattern.is_suffix
        self.score: Final[Score] = (_SUFFIX, len(self.text) + 1) if pattern.is_suffix else (_EXACT, len(self.text))
        self._is_absolute: Final = self.text.endswith(".")
        self._end: Final = "." + self.text

    def fits(self, host: str) -> bool:
        """`host` is in lower case; empty never fits. A trailing dot of it counts only where the pattern has one."""
        if not host:
            return False
        if not self._is_absolute and host[-1] == ".":
            host = host[:-1]
        return host.endswith(self._end) if self.is_suffix else host == self.text


# ---- paths


class PathMatcher:
    __slots__ = ("exact", "prefix", "regex")

    def __init__(self, match: PathMatch) -> None:
        """At most one of the three is set; with none the path is not looked at, as with the prefix `/`."""
        self.exact: bytes | None = None
        self.prefix: bytes | None = None
        """Without the slashes at its end."""
        self.regex: Pattern | None = None
        if match.exact is not None:
            self.exact = match.exact.encode()
        elif match.regex is not None:
            self.regex = match.regex
        elif match.prefix is not None and match.prefix != "/":
            self.prefix = match.prefix.encode().rstrip(b"/")

    def length(self, path: bytes, effort: Effort) -> int:
        """How many characters of the path (without its query) matched; -1 if it does not."""
        exact = self.exact
        if exact is not None:
            return len(path) if exact == path else -1
        prefix = self.prefix
        if prefix is not None:
            size = len(prefix)
            if not path.startswith(prefix):
                return -1
            # Whole segments: what follows is a slash, or nothing but slashes.
            return size if len(path) == size or path[size] == _SLASH else -1
        regex = self.regex
        if regex is not None:
            return len(path) if regex.covers(path, effort) else -1
        return 1


_SLASH: Final = 0x2F


# ---- headers and query parameters


class ValueMatcher:
    __slots__ = ("name", "exact", "regex")

    def __init__(self, name: str, match: ValueMatch) -> None:
        self.name: Final = name.encode()
        self.exact: Final = match.exact
        self.regex: Final = match.regex

    def fits_field(self, fields: Sequence[Field], effort: Effort) -> bool:
        """Whether some value of that header fits; an expression matches visible ASCII only."""
        effort.spend(_NAME_STEPS * len(fields), "the header fields")
        name = self.name
        for field in fields:
            if field.name == name:
                regex = self.regex
                if regex is None:
                    if field.value == self.exact:
                        return True
                elif field.value.isascii() and regex.covers(field.value, effort):
                    return True
        return False

    def fits_pair(self, pairs: Sequence[tuple[bytes, bytes]], effort: Effort) -> bool:
        """Whether some value of that query parameter fits."""
        effort.spend(_NAME_STEPS * len(pairs), "the query")
        name = self.name
        for one, value in pairs:
            if one == name:
                regex = self.regex
                if value == self.exact if regex is None else regex.covers(value, effort):
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
