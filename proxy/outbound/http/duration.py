"""Durations in texts, written as Linkerd writes them."""

from __future__ import annotations


def duration_text(seconds: float) -> str:
    """`100ms`, `1.5s`."""
    for unit, size_s in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size_s:
            return f"{seconds / size_s:.9g}{unit}"
    return f"{seconds / 1e-9:.9g}ns"
