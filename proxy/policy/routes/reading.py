"""Finds the other paths that an app may understand when it reads a path.

A path is passed on as it came, byte for byte, and is matched as it came. But apps decode it, resolve its dot
segments, merge its slashes, cut off a fragment or path parameters, each in its own way. Where the result could be
another path, authorization tries every reading and permits only what all of them permit. Pure functions, linear in
the length of the path.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

has_readings: Final = re.compile(rb"[%\\;#]|//|/\.").search
"""Matches a path, with or without a query, that can be read in another way. Almost none can."""

_parameters: Final = re.compile(rb";[^/]*")


class Reading(NamedTuple):
    path: bytes
    """With its query."""
    goes_up: bool
    """Whether a `..` was resolved in it, so that it leads out of the directory in which the path seems to be."""


def other_readings(path: bytes) -> list[Reading]:
    """All other readings, each once, in any order."""
    path, fragment, _ = path.partition(b"#")
    written, mark, query = path.partition(b"?")
    query = mark + query
    decoded = _decoded(written)
    found: dict[bytes, bool] = {}
    if fragment:
        found[written] = False
    found.setdefault(decoded, False)
    for one in (
        written,
        decoded,
        _decoded(decoded),
        _decoded(_parameters.sub(b"", written)),
        _parameters.sub(b"", decoded),
    ):
        plain, goes_up = _resolved(one.replace(b"\\", b"/"))
        found[plain] = found.get(plain, False) or goes_up
    if not fragment:
        found.pop(written, None)
    return [Reading(one + query, goes_up) for one, goes_up in found.items()]


def _decoded(path: bytes) -> bytes:
    return unquote_to_bytes(path) if b"%" in path else path


def _resolved(path: bytes) -> tuple[bytes, bool]:
    """The path without dot segments (RFC 3986 section 5.2.4) and without empty ones, and whether one of them was `..`."""
    segments = path.split(b"/")
    kept: list[bytes] = []
    goes_up = False
    for one in segments:
        if one == b"..":
            goes_up = True
            if kept:
                kept.pop()
        elif one and one != b".":
            kept.append(one)
    end = b"/" if kept and segments[-1] in (b"", b".", b"..") else b""
    return b"/" + b"/".join(kept) + end, goes_up
