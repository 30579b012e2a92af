"""Which protocols an Upgrade may name, in HTTP/1's field and in HTTP/2's `:protocol`.

A tunnel carries bytes that no policy sees. If they could be HTTP again, a
client that is refused a path outside could ask for it inside. So HTTP in any
version is no protocol to upgrade to (RFC 9113 section 3.1 took `h2c` away),
nor is TLS, in which HTTP would go on (RFC 2817).
"""

from __future__ import annotations

import re
from typing import Final

_names_http: Final = re.compile(
    rb"(?i)(?<![!#$%&'*+\-.^_`|~0-9A-Za-z])(?:h2c?|h3|http|tls)(?:-[0-9a-z]+)?(?![!#$%&'*+\-.^_`|~0-9A-Za-z])"
).search
"""Anywhere in a member: servers that split it at other octets than `/` see the name too."""


def protocols(value: bytes) -> list[bytes]:
    """The members of an Upgrade field, empty ones left out (RFC 9110 section 5.6.1)."""
    return [one for part in value.split(b",") if (one := part.strip(b" \t"))]


def names_http(protocol: bytes) -> bool:
    """Whether HTTP would go on inside: `h2c`, `H2C/1.0`, `h2`, `h2c-14`, `HTTP/2.0`, `TLS/1.0` and the like."""
    return _names_http(protocol) is not None


def is_asked_for(answered: bytes, asked: bytes) -> bool:
    """Whether every protocol that a 101 names was in the request, in whatever version.

    A 101 that names none switches to whatever was asked for.
    """
    offered = {_name_of(one) for one in protocols(asked)}  # a set: either head has room for thousands
    return bool(offered) and all(_name_of(one) in offered for one in protocols(answered))


def _name_of(protocol: bytes) -> bytes:
    return protocol.partition(b"/")[0].lower()
