"""Compares recordings of the real mesh with what Sponson does: heads field by field, names without case, bodies by
content.

Every intended difference is listed here with the case it belongs to; any other difference is a fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"

MEANT_IN_PAIR = re.compile(
    r"(two-hosts|host-with-userinfo|http11-no-host|http12|http20-line|te-twice|cl-and-te|bad-chunk|many-headers|long-header"
    r"|huge-header|absolute|expect|hop-by-hop|answer-(early-hints|chunked|304|closed|nothttp|te-cl|badhead))/"
)
"""Cases in which Sponson intentionally does better than what was recorded; for each, a test of its own shows how."""

_HEAD = re.compile(r"^(?:[A-Z]+ \S+ HTTP/1\.[01]|HTTP/1\.[01] \d{3}[^\r\n]*)\r?\n")
_REPEATED = re.compile(r"\{(.)\*(\d+)\}")
_DATE = re.compile(rb"(?i)(\r\ndate: )[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT(?=\r\n)")


def pair_cases() -> dict[str, dict[str, Any]]:
    """The recorded requests by name: `sent` as bytes (latin-1 text in the file), `app_saw` and `client_got` as text."""
    cases: dict[str, dict[str, Any]] = json.loads((DATA / "http1-pair.json").read_text())
    for case in cases.values():
        case["sent"] = _REPEATED.sub(lambda m: m[1] * int(m[2]), case["sent"]).encode("latin-1")
    return cases


def masked(data: bytes) -> str:
    """Bytes in the form of the recordings: latin-1 text, with dates replaced by DATE."""
    return _DATE.sub(rb"\1DATE", data).decode("latin-1")


def heads(value: Any) -> Any:
    """HTTP/1 texts as start line, fields (order of different names free), body, trailers, and what follows."""
    if isinstance(value, dict):
        return {key: heads(one) for key, one in value.items() if key != "sent"}
    if isinstance(value, list):
        if value and all(isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in value):
            return sorted(value, key=lambda one: one[0])
        return [heads(one) for one in value]
    if isinstance(value, str) and _HEAD.match(value):
        head, _, rest = value.partition("\r\n\r\n" if "\r\n\r\n" in value else "\n\n")
        first, *lines = head.splitlines()
        fields = sorted(([n.lower(), v.strip()] for n, _, v in (x.partition(":") for x in lines)), key=lambda f: f[0])
        if ["transfer-encoding", "chunked"] in fields:
            body, trailers, rest = dechunked(rest)
            return {"start": first, "fields": fields, "body": body, "trailers": trailers, "rest": heads(rest)}
        size = next((int(v) for n, v in fields if n == "content-length" and v.isdigit()), 0)
        if _HEAD.match(rest[size:]):
            return {"start": first, "fields": fields, "rest": rest[:size], "next": heads(rest[size:])}
        return {"start": first, "fields": fields, "rest": heads(rest)}
    return value


def dechunked(text: str) -> tuple[str, list[list[str]], str]:
    """The body, the trailers (names in lower case) and the rest of a text in chunked coding; the text itself if it is
    not chunked.
    """
    body, at = "", 0
    while True:
        line = re.compile(r"([0-9A-Fa-f]+)[^\r\n]*\r\n").match(text, at)
        if line is None:
            return text, [], ""
        size = int(line[1], 16)
        at = line.end()
        if not size:
            break
        body += text[at : at + size]
        at += size + 2
    trailers = []
    while not text.startswith("\r\n", at):
        name, _, rest = text[at:].partition(":")
        value = rest.partition("\r\n")[0]
        trailers.append([name.lower(), value.strip()])
        at += len(name) + 1 + len(value) + 2
    return body, trailers, text[at + 2 :]


def differences(path: str, want: Any, got: Any) -> Iterator[tuple[str, str, str]]:
    """Each difference as its path, what is wanted there and what was found."""
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted(want.keys() | got.keys()):
            yield from differences(f"{path}/{key}", want.get(key, "(absent)"), got.get(key, "(absent)"))
    elif isinstance(want, list) and isinstance(got, list):
        for index in range(max(len(want), len(got))):
            one = want[index] if index < len(want) else "(absent)"
            other = got[index] if index < len(got) else "(absent)"
            yield from differences(f"{path}/{index}", one, other)
    elif want != got:
        yield path, repr(want)[:240], repr(got)[:240]


def pair_differences(
    name: str, want: dict[str, Any], got: dict[str, Any], meant: re.Pattern[str] = MEANT_IN_PAIR
) -> list[str]:
    """The differences in one case of http1-pair.json, one per line; `got` has `app_saw` and `client_got` like the
    recording.
    """
    found = differences(name, heads(want), heads(got))
    return [f"{path}: {a} | {b}" for path, a, b in found if not meant.match(path)]
