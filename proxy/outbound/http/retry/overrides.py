"""What a request's own fields say about its retries and timeouts (docs/linkerd/outbound.md, section 8.4).

The fields count only where the route allows it, and are then removed from the request. A field that cannot be understood is
removed too, and the route's own value applies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from proxy.core.backoff import Backoff
from proxy.http import grpc
from proxy.http.headers import Field
from proxy.policy.client import Retry, Timeouts

_REQUEST_TIMEOUTS: Final = (b"l5d-timeout", b"l5d-request-timeout")
"""If both are there, the second wins."""
_RESPONSE_TIMEOUT: Final = b"l5d-response-timeout"
_LIMIT: Final = b"l5d-retry-limit"
_TRY_TIMEOUT: Final = b"l5d-retry-timeout"
_STATUSES: Final = b"l5d-retry-http"
_CODES: Final = b"l5d-retry-grpc"
NAMES: Final = frozenset((*_REQUEST_TIMEOUTS, _RESPONSE_TIMEOUT, _LIMIT, _TRY_TIMEOUT, _STATUSES, _CODES))

_MOST_RETRIES: Final = 65535
"""The most retries that a policy can express."""
_DEFAULT: Final = Retry(1, 65536, backoff=Backoff(0.025, 0.25, 1.0))
"""The retries of a request that asks for some on a route without any."""

_UNITS_MS: Final = {b"ms": 1, b"s": 1000, b"m": 60_000, b"h": 3_600_000, b"d": 86_400_000}
_KINDS: Final = {b"5xx": (500, 599), b"gateway-error": (502, 504)}
_GRPC: Final = {
    b"cancelled": grpc.CANCELLED,
    b"deadline-exceeded": grpc.DEADLINE_EXCEEDED,
    b"internal": grpc.INTERNAL,
    b"resource-exhausted": grpc.RESOURCE_EXHAUSTED,
    b"unavailable": grpc.UNAVAILABLE,
}


class Overridden(NamedTuple):
    retry: Retry | None
    timeouts: Timeouts


def overridden(fields: tuple[Field, ...], retry: Retry | None, timeouts: Timeouts) -> Overridden:
    """The retries and timeouts of a request with these fields, all of them in NAMES; the first of repeated fields
    counts. `retry` and `timeouts` are the route's.
    """
    said: dict[bytes, bytes] = {}
    for one in fields:
        said.setdefault(one.name, one.value)
    request_s = timeouts.request_s
    for name in _REQUEST_TIMEOUTS:
        given_s = duration_of(said.get(name))
        request_s = request_s if given_s is None else given_s
    response_s = duration_of(said.get(_RESPONSE_TIMEOUT))
    if response_s is None:
        response_s = timeouts.response_s
    return Overridden(_retry(said, retry), Timeouts(request_s, response_s, timeouts.idle_s))


def _retry(said: dict[bytes, bytes], retry: Retry | None) -> Retry | None:
    limit = _number(said.get(_LIMIT))
    try_timeout_s = duration_of(said.get(_TRY_TIMEOUT))
    statuses, codes = said.get(_STATUSES), said.get(_CODES)
    if limit is None and try_timeout_s is None and statuses is None and codes is None:
        return retry
    made = _DEFAULT if retry is None else retry
    return replace(
        made,
        max_retries=made.max_retries if limit is None else limit,
        timeout_s=made.timeout_s if try_timeout_s is None else try_timeout_s,
        statuses=made.statuses if statuses is None else statuses_of(statuses),
        grpc_codes=made.grpc_codes if codes is None else codes_of(codes),
    )


def duration_of(value: bytes | None) -> float | None:
    """Seconds of `250ms`, `2s`, `1m`, `1h`, `1d` or `0`; None for any other text."""
    text = value.strip() if value is not None else b""
    digits = text.rstrip(b"mshd")
    if not digits.isdigit() or len(digits) > 15:
        return None
    unit = text[len(digits) :]
    if not unit:
        return 0.0 if not int(digits) else None
    size_ms = _UNITS_MS.get(unit)
    return None if size_ms is None else int(digits) * size_ms / 1000


def statuses_of(value: bytes) -> tuple[tuple[int, int], ...]:
    """Inclusive ranges from a list such as `5xx,gateway-error,503,500-504`; items of any other form are left out."""
    found: list[tuple[int, int]] = []
    for one in value.lower().split(b","):
        first, _, last = one.partition(b"-")
        kind = _KINDS.get(one)
        if kind is not None:
            found.append(kind)
        elif _is_status(first) and (_is_status(last) if b"-" in one else True):
            start, end = int(first), int(last or first)
            if start <= end:
                found.append((start, end))
    return tuple(found)


def codes_of(value: bytes) -> frozenset[int]:
    """The codes for a list of names such as `unavailable,internal`; unknown names are left out."""
    return frozenset(_GRPC[one] for one in value.lower().split(b",") if one in _GRPC)


def _is_status(text: bytes) -> bool:
    return len(text) == 3 and text.isdigit() and 100 <= int(text) < 600


def _number(value: bytes | None) -> int | None:
    if value is None or not value.isdigit() or len(value) > 19:
        return None
    return min(int(value), _MOST_RETRIES)
