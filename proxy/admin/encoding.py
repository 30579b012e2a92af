"""Whether a client takes gzip (RFC 9110, section 12.5.3)."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.http.headers import Field


def takes_gzip(fields: Iterable[Field]) -> bool:
    """Whether the client accepts gzip: its quality for gzip counts, else that for `*`; a quality of zero means no."""
    by_coding: dict[bytes, bool] = {}
    for field in fields:
        if field.name == b"accept-encoding":
            for member in field.value.lower().split(b","):
                coding, *parameters = (part.strip() for part in member.split(b";"))
                by_coding[coding] = all(_is_above_zero(parameter) for parameter in parameters)
    for coding in (b"gzip", b"x-gzip", b"*"):
        if coding in by_coding:
            return by_coding[coding]
    return False


def _is_above_zero(parameter: bytes) -> bool:
    """False for `q=0`, `q=0.000` and qualities that cannot be read; True for parameters that are not a quality."""
    name, _, value = parameter.partition(b"=")
    if name.strip() != b"q":
        return True
    digits = value.strip().replace(b".", b"", 1)
    return digits.isdigit() and digits.strip(b"0") != b""
