"""Trace attributes, log formats and the number of cores (docs/linkerd/configuration.md, section 4.8).

Nothing here stops the process; what cannot be used is warned of and left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from proxy.config.reading import syntax
from proxy.config.reading.reader import PREFIX, Reader
from proxy.core import limits
from proxy.core.small_file import read_small

T = TypeVar("T")


def read(reader: Reader, values: dict[str, Any]) -> None:
    values["trace_attributes"] = trace_attributes(reader)
    values["log_format"] = "json" if (reader.text("LOG_FORMAT") or "").strip().lower() == "json" else "plain"
    access_log = (reader.text("ACCESS_LOG") or "").lower()
    values["access_log"] = access_log if access_log in ("apache", "json") else None
    cores = _tolerant(reader, "CORES", _cores)
    values["cores_min"] = _tolerant(reader, "CORES_MIN", _cores) or cores or 1
    values["cores_max"] = _tolerant(reader, "CORES_MAX", _cores)
    values["cores_max_ratio"] = _tolerant(reader, "CORES_MAX_RATIO", _ratio)


def trace_attributes(reader: Reader) -> tuple[tuple[str, str], ...]:
    """Service name, labels file, extra ones, OTEL's: a later one wins. Sorted by key."""
    found: dict[str, str] = {}
    service = reader.text("TRACE_SERVICE_NAME")
    if service is not None:
        found["service.name"] = service
    path = reader.text("TRACE_ATTRIBUTES_PATH")
    if path is not None:
        try:
            found |= attributes(read_small(path, limits.RECORD_BYTES).decode())
        except (OSError, ValueError) as error:
            reader.warn(f"Failed to read trace attributes error={error} path={path}")
    found |= attributes(reader.text("TRACE_EXTRA_ATTRIBUTES") or "")
    found |= attributes(reader.text("OTEL_RESOURCE_ATTRIBUTES", prefix="") or "")
    return tuple(sorted(found.items()))


def attributes(text: str) -> dict[str, str]:
    """Lines of `key=value`, split at the first `=`; quotes around the value are dropped, lines without `=` ignored."""
    pairs = (line.removesuffix("\r").partition("=") for line in text.split("\n"))
    return {key: value.strip('"') for key, equals, value in pairs if equals}


def _tolerant(reader: Reader, name: str, read_value: Callable[[str], T]) -> T | None:
    text = reader.text(name)
    if text is None:
        return None
    try:
        return read_value(text)
    except syntax.Invalid:
        reader.warn(f"Ignoring invalid configuration {PREFIX}{name}={syntax.debug(text)}")
        return None


def _cores(text: str) -> int:
    cores = syntax.u64(text)
    if not cores:
        raise syntax.Invalid("0 cores")
    return cores


def _ratio(text: str) -> float:
    ratio = syntax.floating(text)
    if not 0.0 < ratio <= 1.0:
        raise syntax.Invalid("a ratio is over 0 and at most 1")
    return ratio
