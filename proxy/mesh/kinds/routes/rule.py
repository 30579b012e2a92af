"""Rules of HTTP and gRPC routes, and the annotations that say when to give up on a request and when to try it again.

The same annotations on a Service apply to requests that no route matches.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from proxy.core.backoff import Backoff
from proxy.http import grpc
from proxy.mesh.kinds import annotation
from proxy.mesh.kinds.routes.filters import FILTERS, filters
from proxy.mesh.kinds.routes.matching import HOSTNAMES
from proxy.mesh.kinds.routes.parent import PARENT_REF, BackendRef, Parent, backend_ref, backend_ref_schema
from proxy.mesh.manifests.kind import Metadata, Resource
from proxy.mesh.manifests.schema import ANYTHING, TEXT, ListOf, Record, Schema, Text, likely, shown
from proxy.mesh.manifests.value import Value
from proxy.policy.client import Retry, Timeouts
from proxy.policy.routes.route import Filter, GrpcMatch, HostMatch, HttpMatch

RETRY_BYTES: Final = 65536
RETRY_BACKOFF: Final = Backoff(0.025, 0.250, 1.0)
"""The settings that Linkerd's controller gives every retry."""

_RETRY: Final = "retry.linkerd.io"
_TIMEOUT: Final = "timeout.linkerd.io"
_U16: Final = 65535

_STATUSES: Final = {"5xx": (500, 599), "gateway-error": (502, 504)}
_RANGE: Final = re.compile(r"([1-5][0-9][0-9])(?:-([1-5][0-9][0-9]))?")
_CODES: Final = {
    "cancelled": grpc.CANCELLED,
    "deadline-exceeded": grpc.DEADLINE_EXCEEDED,
    "internal": grpc.INTERNAL,
    "resource-exhausted": grpc.RESOURCE_EXHAUSTED,
    "unavailable": grpc.UNAVAILABLE,
}

_DURATION: Final = re.compile(
    r"(?=[0-9])(?:([0-9]{1,5})h)?(?:([0-9]{1,5})m(?!s))?(?:([0-9]{1,5})s)?(?:([0-9]{1,5})ms)?"
)
TIMEOUTS: Final = Record(
    dict.fromkeys(("request", "backendRequest"), Text(pattern=_DURATION, means="duration such as 500ms, 10s or 1m30s"))
)


@dataclass(frozen=True, slots=True)
class Rule:
    matches: tuple[HttpMatch, ...] | tuple[GrpcMatch, ...]
    filters: tuple[Filter, ...] = ()
    backends: tuple[BackendRef, ...] = ()
    """Empty for the resource that the route is attached to."""
    timeouts: Timeouts = Timeouts()
    retry: Retry | None = None


@dataclass(frozen=True, slots=True)
class Route(Resource):
    group: str
    kind: str
    parents: tuple[Parent, ...]
    hosts: tuple[HostMatch, ...]
    rules: tuple[Rule, ...]
    created_at: str = ""

    @property
    def is_grpc(self) -> bool:
        return self.kind == "GRPCRoute"


def route_fields(matches: Schema, **of_rules: Schema) -> Record:
    """The schema of a route of requests: what its rules match, and what else they may have."""
    rule = Record(
        {
            "name": TEXT,
            "matches": matches,
            "filters": FILTERS,
            "backendRefs": ListOf(backend_ref_schema(FILTERS)),
            "sessionPersistence": ANYTHING,
            **of_rules,
        }
    )
    spec = Record(
        {
            "parentRefs": ListOf(PARENT_REF),
            "hostnames": HOSTNAMES,
            "rules": ListOf(rule),
            "useDefaultGateways": ANYTHING,
        }
    )
    return Record({"spec": spec}, "spec")


def read_rule(value: Value, meta: Metadata, match: Callable[[Value], Any], retry: Retry | None) -> Rule:
    usual = timeouts(meta)
    request_s = usual.request_s
    given = value.get("timeouts", "request")
    if request_s is None and given is not None:
        request_s = _duration_s(given) or None  # zero is "no timeout" (GEP-1742)
    return Rule(
        tuple(match(one) for one in value.items("matches")),
        tuple(filters(value)),
        tuple(backend_ref(one, meta.namespace, filters(one)) for one in value.items("backendRefs")),
        Timeouts(request_s, usual.response_s, usual.idle_s),
        retry,
    )


def _duration_s(value: Value) -> float:
    match = _DURATION.fullmatch(value.text())
    if match is None:
        raise value.error(f"{shown(value.text())} is no duration such as 500ms, 10s or 1m30s")
    return sum(int(part or 0) * unit_s for part, unit_s in zip(match.groups(), (3600.0, 60.0, 1.0, 0.001), strict=True))


def timeouts(meta: Metadata) -> Timeouts:
    request, response, idle = (meta.annotations.get(f"{_TIMEOUT}/{name}") for name in ("request", "response", "idle"))
    return Timeouts(*(None if one is None else annotation.duration_s(one) for one in (request, response, idle)))


def http_retry(meta: Metadata) -> Retry | None:
    given = meta.annotations.get(f"{_RETRY}/http")
    statuses = () if given is None else tuple(_statuses(part, given) for part in given.text().split(","))
    return _retry(meta, given is not None, statuses, frozenset())


def grpc_retry(meta: Metadata) -> Retry | None:
    given = meta.annotations.get(f"{_RETRY}/grpc")
    codes = frozenset() if given is None else frozenset(_code(part, given) for part in given.text().split(","))
    return _retry(meta, given is not None, (), codes)


def _retry(
    meta: Metadata, has_conditions: bool, statuses: tuple[tuple[int, int], ...], codes: frozenset[int]
) -> Retry | None:
    """None unless one of the annotations asks for retries; a limit of zero means no retries, as in Linkerd."""
    limit, timeout = meta.annotations.get(f"{_RETRY}/limit"), meta.annotations.get(f"{_RETRY}/timeout")
    retries = 0 if limit is None else annotation.whole(limit, 0, _U16, "number of retries")
    timeout_s = None if timeout is None else annotation.duration_s(timeout) or None
    if not retries and timeout_s is None and not has_conditions:
        return None
    return Retry(retries or 1, RETRY_BYTES, statuses, codes, timeout_s, RETRY_BACKOFF)


def _statuses(part: str, given: Value) -> tuple[int, int]:
    word = part.strip().lower()
    match = _RANGE.fullmatch(word)
    found = _STATUSES.get(word) or (match and (int(match[1]), int(match[2] or match[1])))
    if not found or found[0] > found[1]:
        hint = likely(word, tuple(_STATUSES))
        raise given.error(
            f"{shown(part)} is no condition: 5xx, gateway-error, a status or a range such as 500-503{hint}"
        )
    return found


def _code(part: str, given: Value) -> int:
    word = part.strip().lower()
    if word not in _CODES:
        raise given.error(f"{shown(part)} is none of {', '.join(_CODES)}{likely(word, tuple(_CODES))}")
    return _CODES[word]
