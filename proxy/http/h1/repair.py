"""Repairs heads that break the letter of HTTP/1 in ways that RFC 9112 lets a recipient repair.

Called only for a head that could not be read. Each function returns the data
with its head rewritten into the one form that every recipient reads alike, or
None if it has nothing to repair.
"""

from __future__ import annotations

import re

from proxy.core import limits
from proxy.core.failure.errors import ProtocolError

_head_end = re.compile(rb"\n\r?\n").search
_line_end = re.compile(rb"\r?\n")
_empty_lines = re.compile(rb"(?:\r?\n)+").match
_repeated_length = re.compile(rb"(?im)^(content-length:[ \t]*)([0-9]+)(?:[ \t]*,[ \t]*\2)+[ \t]*\r\n")
_space_before_colon = re.compile(rb"(?m)^([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]+:")


def is_still_begun(data: bytes, known: int) -> bool:
    """Whether `data` is a head that has begun and no more, of which `known` octets were found to be that before. A client
    may send a long head octet by octet, and each costs no more than the last ones: only they can hold the end. When
    the first line is whole the answer is no, once, because that line is then to be judged.
    """
    if data[0] < 0x20 or len(data) > limits.HEAD_BYTES or _head_end(data, max(0, known - 2)) is not None:
        return False
    return data.find(b"\n", known) < 0 or data.find(b"\n", 0, known) >= 0


def with_crlf(data: bytes) -> bytes | None:
    """`data` with the line ends of its head as CRLF (section 2.2); None also if there is no whole head."""
    end = _head_end(data)
    if end is None:
        return None
    lines = _line_end.split(data[: end.start()].removesuffix(b"\r"))
    changed = b"\r\n".join(lines) + b"\r\n\r\n" + data[end.end() :]
    return None if changed == data else changed


def with_one_length(data: bytes) -> bytes | None:
    """`data` with a list of equal lengths in its head said once (section 6.3, rule 5).

    For responses: a request that says `5, 5` is refused, as linkerd2-proxy does.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    changed, count = _repeated_length.subn(rb"\1\2\r\n", head + b"\r\n")
    return changed + end[2:] + rest if count else None


def without_spaces(data: bytes) -> bytes | None:
    """`data` without white space between the names of its head's fields and their colons (section 5.1).

    For responses: in a request it is refused, since a server behind us might read another name.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    changed, count = _space_before_colon.subn(rb"\1:", head)
    return changed + end + rest if count else None


def skip_empty_lines(data: bytes) -> bytes:
    """Empty lines before a request line are ignored (section 2.2)."""
    match = _empty_lines(data)
    return data[match.end() :] if match is not None else data


def repaired(data: bytes) -> bytes | None:
    """`data` as a client should have begun it: without empty lines before its request, or with CRLF; None if nothing is to be done."""
    better = skip_empty_lines(data) if data[0] < 0x20 else with_crlf(data)
    return None if better == data else better


def repaired_response(data: bytes, error: ProtocolError) -> bytes:
    """`data` with a response head that can be read. Raises `error`, the reason why it could not be read, if nothing
    can be repaired.
    """
    better = with_crlf(data) or with_one_length(data) or without_spaces(data)
    if better is None:
        raise error
    return better
