"""What the filters of a route do to a request's head (docs/linkerd/inbound.md, section 6, "Filters"; docs/linkerd/outbound.md, section 8).

Pure functions over heads; whether a failure is an answer or an error is
the direction's to say.
"""

from __future__ import annotations

from typing import Final

from proxy.http.head import RequestHead
from proxy.http.headers import Field, field
from proxy.policy.route import GrpcMatch, HeaderModifier, HttpMatch, Redirect

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class InvalidRedirectError(Exception):
    """The redirection makes no location for this request."""


def modify(fields: list[Field], modifier: HeaderModifier) -> list[Field]:
    """The fields after `add` (appended), `set` (replaced) and `remove`, in this order; a new list."""
    edited = fields + [field(name.lower().encode(), value) for name, value in modifier.add]
    if modifier.set or modifier.remove:
        gone = {name.lower().encode() for name, _ in modifier.set}
        edited = [one for one in edited if one.name not in gone]
        edited += [field(name.lower().encode(), value) for name, value in modifier.set]
        removed = {name.lower().encode() for name in modifier.remove}
        edited = [one for one in edited if one.name not in removed]
    return edited


def location(redirect: Redirect, request: RequestHead, match: HttpMatch | GrpcMatch | None) -> bytes | None:
    """Where the request is sent; None if that is where it goes anyway. InvalidRedirectError if there is no such place."""
    scheme = redirect.scheme or request.scheme.decode("latin-1") or "http"
    authority = _authority(redirect, request.authority.decode("latin-1"), scheme)
    path = _path(redirect, request.path.decode("latin-1"), match)
    place = f"{scheme}://{authority}{path}"
    original = f"{request.scheme.decode('latin-1') or 'http'}://{request.authority.decode('latin-1')}"
    return None if place == original + request.path.decode("latin-1") else place.encode("latin-1")


def _authority(redirect: Redirect, authority: str, scheme: str) -> str:
    host, port = _split(authority)
    if redirect.host and redirect.port:
        return f"{redirect.host}:{redirect.port}"
    if not authority and not redirect.host:
        raise InvalidRedirectError("the request names no authority to redirect from")
    if redirect.host:
        # As text: a port may have more digits than Python makes a number of.
        is_default = not port or port.lstrip("0") == str(_DEFAULT_PORTS.get(scheme))
        return redirect.host if is_default else f"{redirect.host}:{port}"
    if redirect.port:
        return host if _DEFAULT_PORTS.get(scheme) == redirect.port else f"{host}:{redirect.port}"
    return authority


def _split(authority: str) -> tuple[str, str]:
    host, colon, port = authority.rpartition(":")
    if colon and port.isascii() and port.isdigit():
        return host, port
    return authority, ""


def _path(redirect: Redirect, target: str, match: HttpMatch | GrpcMatch | None) -> str:
    if redirect.path is not None:
        return redirect.path
    if redirect.path_prefix is None:
        return target
    prefix = match.path.prefix if isinstance(match, HttpMatch) else None
    if prefix is None:
        raise InvalidRedirectError("only what a path prefix matched can have its prefix replaced")
    rest = target[len(prefix.rstrip("/")) :]
    start = redirect.path_prefix
    if rest.startswith("/"):
        return start.rstrip("/") + rest
    # What follows a whole prefix is nothing or a query.
    return start + rest
