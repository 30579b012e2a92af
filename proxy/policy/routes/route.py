"""Routes as data, for both directions: the matches of a request, and the filters for it.

These are values. match.py does the matching, filter.py applies the filters.
Semantics: docs/linkerd/inbound.md, section 6; docs/linkerd/outbound.md, sections 7 and 8.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.policy.routes.pattern import Pattern


@dataclass(frozen=True, slots=True)
class HostMatch:
    text: str
    """Lower case; a suffix without its leading `*.`."""
    is_suffix: bool = False


@dataclass(frozen=True, slots=True)
class ValueMatch:
    """Matches a header or query parameter: the exact bytes, or an expression that must cover the whole value."""

    name: str
    exact: bytes | None = None
    regex: Pattern | None = None


@dataclass(frozen=True, slots=True)
class PathMatch:
    """Exactly one is set."""

    exact: str | None = None
    prefix: str | None = None
    regex: Pattern | None = None


@dataclass(frozen=True, slots=True)
class HttpMatch:
    path: PathMatch = PathMatch(prefix="/")
    headers: tuple[ValueMatch, ...] = ()
    query_params: tuple[ValueMatch, ...] = ()
    method: str = ""


@dataclass(frozen=True, slots=True)
class GrpcMatch:
    service: str = ""
    method: str = ""
    headers: tuple[ValueMatch, ...] = ()


@dataclass(frozen=True, slots=True)
class HeaderModifier:
    add: tuple[tuple[str, bytes], ...] = ()
    set: tuple[tuple[str, bytes], ...] = ()
    remove: tuple[str, ...] = ()
    on_response: bool = False


@dataclass(frozen=True, slots=True)
class Redirect:
    scheme: str = ""
    host: str = ""
    port: int = 0
    path: str | None = None
    path_prefix: str | None = None
    status: int = 301


@dataclass(frozen=True, slots=True)
class FailureInjector:
    """`status` is an HTTP status, or a gRPC code if `is_grpc`."""

    status: int
    message: str
    is_grpc: bool = False
    numerator: int = 1
    denominator: int = 1


@dataclass(frozen=True, slots=True)
class Unusable:
    """A filter that we cannot carry out: every request that reaches it fails with this text."""

    text: str


Filter = HeaderModifier | Redirect | FailureInjector | Unusable
