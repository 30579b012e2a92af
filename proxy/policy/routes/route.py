"""Routes as data, for both directions: the matches of a request, and the filters for it.

These are values. match.py does the matching, filter.py applies the filters.
Semantics: docs/linkerd/inbound.md, section 6; docs/linkerd/outbound.md, sections 7 and 8.
"""

from __future__ import annotations

from proxy.core.value import Value
from proxy.policy.routes.pattern import Pattern


class HostMatch(Value):
    text: str
    """Lower case; a suffix without its leading `*.`."""
    is_suffix: bool = False


class ValueMatch(Value):
    """Matches a header or query parameter: the exact bytes, or an expression that must cover the whole value."""

    name: str
    exact: bytes | None = None
    regex: Pattern | None = None


class PathMatch(Value):
    """Exactly one is set."""

    exact: str | None = None
    prefix: str | None = None
    regex: Pattern | None = None


class HttpMatch(Value):
    path: PathMatch = PathMatch(prefix="/")
    headers: tuple[ValueMatch, ...] = ()
    query_params: tuple[ValueMatch, ...] = ()
    method: str = ""


class GrpcMatch(Value):
    service: str = ""
    method: str = ""
    headers: tuple[ValueMatch, ...] = ()


class HeaderModifier(Value):
    add: tuple[tuple[str, bytes], ...] = ()
    set: tuple[tuple[str, bytes], ...] = ()
    remove: tuple[str, ...] = ()
    on_response: bool = False


class Redirect(Value):
    scheme: str = ""
    host: str = ""
    port: int = 0
    path: str | None = None
    path_prefix: str | None = None
    status: int = 301


class FailureInjector(Value):
    """`status` is an HTTP status, or a gRPC code if `is_grpc`."""

    status: int
    message: str
    is_grpc: bool = False
    numerator: int = 1
    denominator: int = 1


class Unusable(Value):
    """A filter that we cannot carry out: every request that reaches it fails with this text."""

    text: str


Filter = HeaderModifier | Redirect | FailureInjector | Unusable
