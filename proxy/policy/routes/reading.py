"""Finds the other requests that an app may understand when it reads one.

A request is passed on as it came, byte for byte, and is matched as it came. But apps decode its path, resolve dot
segments, merge slashes, cut off a fragment or path parameters, each in its own way; some read methods without regard to case, or
names of fields without regard to `-` and `_`. Where the result could be another request, authorization tries every reading
and permits only what all of them permit. Pure functions, linear in the length of what they read.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from proxy.http.head import RequestHead
from proxy.http.headers import Field

has_readings: Final = re.compile(rb"[%\\;#]|//|/\.").search
"""Matches a path, with or without a query, that can be read in another way. Almost none can."""

_parameters: Final = re.compile(rb";[^/]*")


def other_heads(request: RequestHead, reads_fields: bool) -> list[RequestHead]:
    """The request with another method or other names of fields, as an app may read it; mostly none. `reads_fields`: whether any
    route looks at fields.
    """
    found: list[RequestHead] = []
    in_capitals = request.method.upper()
    if in_capitals != request.method:
        # Methods are case-sensitive (RFC 9110 section 9.1), which frameworks forget: Werkzeug serves `delete` as DELETE.
        found.append(request.copy())
        found[0].method = in_capitals
    if reads_fields and any(b"_" in one.name for one in request.fields):
        # For CGI and its descendants (WSGI) X_Debug and X-Debug are the same variable.
        fields = [
            Field(one.name.replace(b"_", b"-"), one.value, one.kind, one.is_sensitive, b"", b"")
            if b"_" in one.name
            else one
            for one in request.fields
        ]
        found += [one.with_fields(fields.copy()) for one in (request, *found)]
    return found


class Reading(NamedTuple):
    path: bytes
    """With its query."""
    goes_up: bool
    """Whether a `..` was resolved in it, so that it leads out of the directory in which the path seems to be."""


def other_readings(path: bytes) -> list[Reading]:
    """All other readings, each once, in any order."""
    found: dict[bytes, bool] = {}
    before, fragment, _ = path.partition(b"#")
    _read(before, found)
    if fragment:
        found[before] = False
        _read(path, found)  # many apps know no fragments, which no client may send
    found.pop(path, None)
    return [Reading(one, goes_up) for one, goes_up in found.items()]


def _read(path: bytes, found: dict[bytes, bool]) -> None:
    """Add the readings of a path in which `#` has no meaning."""
    written, mark, query = path.partition(b"?")
    query = mark + query
    decoded = _decoded(written)
    found.setdefault(decoded + query, False)
    forms = (
        written,
        decoded,
        _decoded(decoded),
        _decoded(_parameters.sub(b"", written)),
        _parameters.sub(b"", decoded),
    )
    for one in dict.fromkeys(form.replace(b"\\", b"/") for form in forms):
        _add(_resolved(one, True), query, found)
        if b"//" in one:
            if b"/.." in one:
                _add(_resolved(one, False), query, found)
            if one.startswith(b"//"):
                # Read as a URL without a scheme (RFC 3986 section 4.2): what follows the slashes is a host.
                _, slash, rest = one.lstrip(b"/").partition(b"/")
                _add((_resolved(slash + rest, True)[0], True), query, found)


def _add(resolved: tuple[bytes, bool], query: bytes, found: dict[bytes, bool]) -> None:
    """Add a resolved path, and what an app makes of it that decodes after it has resolved."""
    plain, goes_up = resolved
    for one in dict.fromkeys((plain, _decoded(plain))):
        whole = one + query
        found[whole] = found.get(whole, False) or goes_up


def _decoded(path: bytes) -> bytes:
    return unquote_to_bytes(path) if b"%" in path else path


def _resolved(path: bytes, merges: bool) -> tuple[bytes, bool]:
    """The path without dot segments (RFC 3986 section 5.2.4), and without empty ones if it `merges` slashes, as many apps do
    and URLs of browsers and Node do not; and whether one of them was `..`."""
    segments = path.split(b"/")
    kept: list[bytes] = []
    goes_up = False
    for one in segments[:-1] if merges else segments[1:-1]:
        if one == b"..":
            goes_up = True
            if kept:
                kept.pop()
        elif one != b"." and (one or not merges):
            kept.append(one)
    last = segments[-1]
    if last == b"..":
        goes_up = True
        if kept:
            kept.pop()
    if last not in (b"", b".", b".."):
        kept.append(last)
    elif kept:
        kept.append(b"")
    return b"/" + b"/".join(kept), goes_up
