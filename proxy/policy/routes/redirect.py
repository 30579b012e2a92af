"""Where a redirection leads (docs/linkerd/inbound.md, section 6, "Filters"; docs/linkerd/outbound.md, section 8.1). Pure."""

from __future__ import annotations

import re
from typing import Final

from proxy.http.head import RequestHead
from proxy.policy.routes.route import GrpcMatch, HttpMatch, Redirect

Match = HttpMatch | GrpcMatch | None
"""The match by which a rule was chosen; None if the rule has none and takes everything."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_is_location = re.compile(r"[\x21-\x7e\x80-\xff]+").fullmatch


class InvalidRedirectError(Exception):
    """The redirection makes no location for this request."""


def location(redirect: Redirect, request: RequestHead, match: Match) -> bytes | None:
    """Where the request is sent; None if that is where it goes anyway. InvalidRedirectError if no location can be
    made.
    """
    scheme = redirect.scheme or request.scheme.decode("latin-1") or "http"
    authority = _authority(redirect, request.authority.decode("latin-1"), scheme)
    path = _path(redirect, request.path.decode("latin-1"), match)
    place = f"{scheme}://{authority}{path}"
    original = f"{request.scheme.decode('latin-1') or 'http'}://{request.authority.decode('latin-1')}"
    if place == original + request.path.decode("latin-1"):
        return None
    if _is_location(place) is None:
        raise InvalidRedirectError(f"{place!r} is no location")
    return place.encode("latin-1")


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


def _path(redirect: Redirect, target: str, match: Match) -> str:
    if redirect.path is not None:
        return _octets(redirect.path)
    if redirect.path_prefix is None:
        return target
    prefix: str | None = None
    if match is None:
        prefix = "/"  # a rule without matches is one of everything, by its prefix
    elif isinstance(match, HttpMatch):
        prefix = match.path.prefix
    if prefix is None:
        raise InvalidRedirectError("only what a path prefix matched can have its prefix replaced")
    rest = target[len(_octets(prefix).rstrip("/")) :]
    start = _octets(redirect.path_prefix)
    if rest.startswith("/"):
        return start.rstrip("/") + rest
    # What follows a whole prefix is nothing or a query.
    return start + rest


def _octets(text: str) -> str:
    """A policy's text by its octets in UTF-8, as the path of a request is read."""
    return text if text.isascii() else text.encode().decode("latin-1")
