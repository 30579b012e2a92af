"""Spans of time on a command line, in the syntax of Linkerd's small programs: `500ms`, `10s`, `2m`, `1h`, `1d`, `0`."""

from __future__ import annotations

import argparse
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LARGEST_MS: Final = 2**64 - 1


def parse_span(text: str) -> float:
    """Seconds. For argparse: ArgumentTypeError."""
    text = text.strip()
    digits = text.rstrip("mshd")
    unit = text[len(digits) :]
    if not digits.isascii() or not digits.isdigit() or len(digits) > 20:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 500ms, 10s or 2m")
    factor = 0 if not unit and not int(digits) else _UNITS_MS.get(unit)
    if factor is None:
        raise argparse.ArgumentTypeError(f"invalid duration unit {unit} (expected one of 'ms', 's', 'm', 'h', or 'd')")
    if int(digits) * factor > _LARGEST_MS:
        raise argparse.ArgumentTypeError(f"{text!r} is too long")
    return int(digits) * factor / 1000


def as_span(span_s: float) -> str:
    """As Rust prints one: `500ms`, `1.5s`, `120s`."""
    return f"{span_s:.9g}s" if span_s >= 1 or not span_s else f"{span_s * 1000:.9g}ms"
