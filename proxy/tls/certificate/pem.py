"""The blocks of a PEM text, found in time linear in its length whatever it has: beginnings without an end included."""

from __future__ import annotations


def blocks(pem: str, what: str) -> list[str]:
    """All blocks of this kind (`CERTIFICATE`), with their first and last lines. Text between them does not matter."""
    begin, end = f"-----BEGIN {what}-----", f"-----END {what}-----"
    found: list[str] = []
    at = pem.find(begin)
    while at >= 0:
        stop = pem.find(end, at)
        if stop < 0:
            break
        stop += len(end)
        found.append(pem[at:stop])
        at = pem.find(begin, stop)
    return found
