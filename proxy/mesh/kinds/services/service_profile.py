"""kind: ServiceProfile (linkerd.io): routes, retries and splits of a service, in Linkerd's older form.

Its name is the full name of its Service. It is in the namespace of the Service, or in that of a client, and then takes
precedence for that client. Its `opaquePorts` are ignored: the Service's annotation decides, as in Linkerd.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proxy.core.address.names import dns_name
from proxy.mesh.kinds import annotation
from proxy.mesh.manifests.kind import Document, Kind, Resource
from proxy.mesh.manifests.schema import (
    ANYTHING,
    FLAG,
    TEXT,
    Decimal,
    Either,
    ListOf,
    Number,
    Record,
    Recursive,
    Text,
    is_ip,
    shown,
)
from proxy.mesh.manifests.value import Value
from proxy.policy.routes.pattern import Pattern, anchored
from proxy.policy.routes.program import PatternError

_U32: Final = 0xFFFFFFFF
_STATUS: Final = (100, 599)
_BUDGET_TTL_S: Final = (1.0, 60.0)
_MOST_RETRIES: Final = (1 << 31) - 1
_QUANTITY: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?([mkM]?)")
_FULL_WEIGHT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a request or a response; exactly one of the fields is set."""

    all: tuple[Condition, ...] | None = None
    any: tuple[Condition, ...] | None = None
    negated: Condition | None = None
    method: str = ""
    path_regex: str = ""
    statuses: tuple[int, int] | None = None
    """Inclusive."""


@dataclass(frozen=True, slots=True)
class ResponseClass:
    condition: Condition
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class ProfileRoute:
    name: str
    condition: Condition
    response_classes: tuple[ResponseClass, ...] = ()
    is_retryable: bool = False
    timeout_s: float = 0.0
    """0 stands for no timeout."""


@dataclass(frozen=True, slots=True)
class RetryBudget:
    ratio: float = 0.2
    min_per_s: int = 10
    ttl_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ServiceProfile(Resource):
    routes: tuple[ProfileRoute, ...] = ()
    budget: RetryBudget = RetryBudget()
    overrides: tuple[tuple[str, int], ...] = ()
    """Authority, with a port or without, and weight, of which 10,000 are the whole."""


def read(document: Document) -> ServiceProfile:
    spec = document.body.need("spec")
    return ServiceProfile(
        *document.meta.key,
        tuple(map(_route, spec.items("routes"))),
        _budget(spec.get("retryBudget")),
        tuple(map(_override, spec.items("dstOverrides"))),
    )


def _route(value: Value) -> ProfileRoute:
    timeout = value.get("timeout")
    retryable = value.get("isRetryable")
    return ProfileRoute(
        value.need("name").text(),
        _request(value.need("condition")),
        tuple(map(_class, value.items("responseClasses"))),
        retryable is not None and retryable.flag(),
        0.0 if timeout is None or not timeout.text() else annotation.go_duration_s(timeout),
    )


def _class(value: Value) -> ResponseClass:
    failure = value.get("isFailure")
    return ResponseClass(_response(value.need("condition")), failure is not None and failure.flag())


def _request(value: Value) -> Condition:
    parts = []
    if (found := value.get("all")) is not None:
        parts.append(Condition(all=tuple(map(_request, found.elements()))))
    if (found := value.get("any")) is not None:
        parts.append(Condition(any=tuple(map(_request, found.elements()))))
    if (found := value.get("method")) is not None and found.text():
        parts.append(Condition(method=_method(found)))
    if (found := value.get("not")) is not None:
        parts.append(Condition(negated=_request(found)))
    if (found := value.get("pathRegex")) is not None and found.text():
        parts.append(Condition(path_regex=_path_regex(found)))
    return _one(value, parts)


def _method(value: Value) -> str:
    method = value.text().upper()
    if annotation.TOKEN.fullmatch(method) is None:
        raise value.error(f"{shown(method)} is no method")
    return method


def _path_regex(value: Value) -> str:
    try:
        Pattern(anchored(value.text()))
    except PatternError as error:
        raise value.error(str(error)) from None
    return value.text()


def _response(value: Value) -> Condition:
    parts = []
    if (found := value.get("all")) is not None:
        parts.append(Condition(all=_responses(found)))
    if (found := value.get("any")) is not None:
        parts.append(Condition(any=_responses(found)))
    if (found := value.get("status")) is not None:
        parts.append(Condition(statuses=_statuses(found)))
    if (found := value.get("not")) is not None:
        parts.append(Condition(negated=_response(found)))
    return _one(value, parts)


def _responses(value: Value) -> tuple[Condition, ...]:
    found = tuple(map(_response, value.elements()))
    if not found:
        raise value.error("a condition needs something to match")
    return found


def _statuses(value: Value) -> tuple[int, int]:
    """Proxies, Linkerd's too, leave out a range that lacks one of its ends."""
    low, high = (value.need(key).number(*_STATUS) for key in ("min", "max"))
    if high < low:
        raise value.error(f"max {high} is below min {low}")
    return low, high


def _one(value: Value, parts: list[Condition]) -> Condition:
    if not parts:
        raise value.error("a condition needs something to match")
    return parts[0] if len(parts) == 1 else Condition(all=tuple(parts))


def _budget(value: Value | None) -> RetryBudget:
    if value is None:
        return RetryBudget()
    ratio = annotation.decimal(value.need("retryRatio"), 0.0, 1000.0)
    ttl = value.need("ttl")
    ttl_s = annotation.go_duration_s(ttl)
    if not _BUDGET_TTL_S[0] <= ttl_s <= _BUDGET_TTL_S[1]:
        raise ttl.error(
            f"{ttl_s:g}s is not within {_BUDGET_TTL_S[0]:g}s and {_BUDGET_TTL_S[1]:g}s: proxies would retry nothing"
        )
    return RetryBudget(ratio, value.need("minRetriesPerSecond").number(0, _MOST_RETRIES), ttl_s)


def _override(value: Value) -> tuple[str, int]:
    authority = value.need("authority")
    host, colon, port = authority.text().rpartition(":")
    if not colon:
        host = port
    elif not port.isascii() or not port.isdigit() or len(port) > 5 or not 1 <= int(port) <= 65535:
        raise authority.error(f"{port[:20]!r} is no port")
    if is_ip(host.strip("[]")) or is_ip(authority.text().strip("[]")):
        raise authority.error(
            f"{authority.text()[:80]!r}: requests can be sent to a name only, such as a Service's, not to an IP address"
        )
    try:
        dns_name(host)  # as sidecars read it
    except ValueError:
        raise authority.error(f"{host[:80]!r} is no DNS name") from None
    return authority.text(), _weight(value.need("weight"))


def _weight(value: Value) -> int:
    """A quantity as Kubernetes writes them: 1, 0.5, 500m."""
    match = _QUANTITY.fullmatch(str(value.raw))
    if match is None:
        raise value.error(f"{str(value.raw)[:20]!r} is no quantity such as 1, 0.5 or 500m")
    scale = {"m": 1, "": 1000, "k": 1_000_000, "M": 1_000_000_000}[match[3]]
    millis = int(match[1]) * scale + int((match[2] or "0").ljust(9, "0")) * scale // 10**9
    weight = millis * (_FULL_WEIGHT // 1000)
    if weight > _U32:
        raise value.error(f"{match[0]} is above {_U32 // _FULL_WEIGHT}")
    return weight


def _request_fields() -> Record:
    nested = ListOf(_REQUEST)
    return Record({"all": nested, "any": nested, "not": _REQUEST, "method": TEXT, "pathRegex": TEXT})


def _response_fields() -> Record:
    nested = ListOf(_RESPONSE)
    status = Record({"min": Number(*_STATUS), "max": Number(*_STATUS)}, "min", "max")
    return Record({"all": nested, "any": nested, "not": _RESPONSE, "status": status})


_REQUEST: Final = Recursive("RequestMatch", _request_fields)
_RESPONSE: Final = Recursive("ResponseMatch", _response_fields)
_ROUTE: Final = Record(
    {
        "name": Text(pattern=re.compile(r"[\s\S]{1,1024}"), means="name"),
        "condition": _REQUEST,
        "isRetryable": FLAG,
        "timeout": TEXT,
        "responseClasses": ListOf(Record({"condition": _RESPONSE, "isFailure": FLAG}, "condition")),
    },
    "name",
    "condition",
)
_BUDGET: Final = Record(
    {"minRetriesPerSecond": Number(0, _MOST_RETRIES), "retryRatio": Decimal(), "ttl": TEXT},
    "minRetriesPerSecond",
    "retryRatio",
    "ttl",
)
_OVERRIDE: Final = Record(
    {"authority": TEXT, "weight": Either(int=Decimal(), float=Decimal(), str=TEXT)}, "authority", "weight"
)
_SPEC: Final = Record(
    {
        "routes": ListOf(_ROUTE),
        "retryBudget": _BUDGET,
        "dstOverrides": ListOf(_OVERRIDE),
        "opaquePorts": ANYTHING,
    }
)
_FIELDS: Final = Record({"spec": _SPEC}, "spec")

SERVICE_PROFILE: Final = Kind("linkerd.io", "ServiceProfile", {"v1alpha2": _FIELDS, "v1alpha1": _FIELDS}, read)
