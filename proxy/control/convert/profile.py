"""DestinationProfile → Profile (docs/linkerd/service-profiles.md, sections 1 to 6).

Only the invalid parts of a profile are left out, never the whole, because a profile only adds to a policy. The caller gets
the list of what was left out, so that an error is reported once, when the profile comes, and not at requests.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from proxy.api import destination_pb2
from proxy.control.convert.endpoint import endpoint_of
from proxy.control.convert.fields import InvalidMessageError, duration_s, kind_of, labels_of, required_s
from proxy.control.convert.route import method_of, regex_of
from proxy.core.address.addr import Addr
from proxy.core.address.names import dns_name, name_and_port
from proxy.core.shares import Reading, at_once
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.profiles.condition import AllOf, AnyOf, MethodIs, NotThat, PathIs, RequestCondition
from proxy.policy.profiles.profile import Profile, ProfileRoute, ResponseClasses, RetryBudget
from proxy.policy.profiles.profile_table import read_table
from proxy.policy.routes.pattern import anchored

_OVERRIDES_PER_PART: Final = 16
_STATUSES: Final = range(100, 1000)
_BUDGET_TTL_S: Final = (1.0, 60.0)
_MOST_RATIO: Final = 1000.0
_MOST_PER_S: Final = (1 << 31) - 1


def profile_of(message: destination_pb2.DestinationProfile, path: str, left_out: list[str] | None = None) -> Profile:
    """Read the whole profile at once; `left_out` is that of read_profile."""
    return at_once(read_profile(message, path, [] if left_out is None else left_out))


def read_profile(message: destination_pb2.DestinationProfile, path: str, left_out: list[str]) -> Reading[Profile]:
    """Read the profile. `path` is what was asked for; the profile's name takes its port from it.

    `left_out` gets one line for each part that was left out, beginning with its place: `route 3: response class 0:
    condition: missing match`.
    """
    routes: list[ProfileRoute] = []
    for index, route in enumerate(message.routes):
        try:
            routes.append((yield from _route_of(route, f"route {index}", left_out)))
        except InvalidMessageError as error:
            left_out.append(f"route {index}: {error}")
        yield 1
    return Profile(
        name=_name_of(message.fully_qualified_name, path.rpartition(":")[2]),
        is_opaque=message.opaque_protocol,
        endpoint=_endpoint_of(message),
        routes=tuple(routes),
        budget=_budget_of(message, left_out),
        overrides=(yield from _overrides_of(message, left_out)),
        table=(yield from read_table([one.condition for one in routes])),
    )


def _name_of(name: str, port: str) -> str:
    try:
        return f"{dns_name(name).removesuffix('.')}:{port}"
    except ValueError:
        return ""


def _endpoint_of(message: destination_pb2.DestinationProfile) -> tuple[Addr, EndpointMeta] | None:
    if not message.HasField("endpoint"):
        return None
    try:
        return endpoint_of(message.endpoint, {})
    except InvalidMessageError:
        return None


def _overrides_of(
    message: destination_pb2.DestinationProfile, notes: list[str]
) -> Reading[tuple[tuple[str, int], ...]]:
    """The overrides that get a share of the traffic; a weight of 0 is not an error."""
    found: list[tuple[str, int]] = []
    for index, one in enumerate(message.dst_overrides):
        if index % _OVERRIDES_PER_PART == _OVERRIDES_PER_PART - 1:
            yield 1
        try:
            authority = name_and_port(one.authority)
        except ValueError as error:
            notes.append(f"override {index}: {error}")
        else:
            if one.weight:
                found.append((authority, one.weight))
    return tuple(found)


# ---- routes


def _route_of(route: destination_pb2.Route, where: str, notes: list[str]) -> Reading[ProfileRoute]:
    if not route.HasField("condition"):
        raise InvalidMessageError("missing condition")
    condition = yield from _request_of(route.condition, where, notes)
    return ProfileRoute(
        condition,
        labels_of(route.metrics_labels),
        *(yield from _classes_of(route, where, notes)),
        route.is_retryable,
        _timeout_of(route, where, notes),
    )


def _timeout_of(route: destination_pb2.Route, where: str, notes: list[str]) -> float | None:
    """A timeout of 0 becomes None, which is its meaning in the Gateway API; Linkerd would let every request fail at
    once.
    """
    try:
        return duration_s(route, "timeout") or None
    except InvalidMessageError as error:
        notes.append(f"{where}: {error}")
        return None


def _request_of(message: destination_pb2.RequestMatch, where: str, notes: list[str]) -> Reading[RequestCondition]:
    kind = kind_of(message, "match", "condition")
    if kind == "all":
        return AllOf((yield from _parts_of(message.all, where, notes)))
    if kind == "any":
        return AnyOf((yield from _parts_of(message.any, where, notes)))
    if kind == "not":
        return NotThat((yield from _request_of(getattr(message, "not"), where, notes)))
    if kind == "method":
        return MethodIs(method_of(message.method).encode())
    pattern = regex_of(anchored(message.path.regex), "path")
    yield pattern.parts
    return PathIs(pattern)


def _parts_of(
    message: destination_pb2.RequestMatch.Seq, where: str, notes: list[str]
) -> Reading[tuple[RequestCondition, ...]]:
    """The conditions of a list; invalid ones are left out."""
    found: list[RequestCondition] = []
    for one in message.matches:
        try:
            found.append((yield from _request_of(one, where, notes)))
        except InvalidMessageError as error:
            notes.append(f"{where}: a part of its condition: {error}")
        yield 1
    return tuple(found)


# ---- response classes: a condition is the set of statuses that meet it, here as the bits of a number

_ALL: Final = sum(1 << status for status in _STATUSES)


def _classes_of(route: destination_pb2.Route, where: str, notes: list[str]) -> Reading[tuple[ResponseClasses, bool]]:
    seen = successes = failures = 0
    has_classes = False
    for index, one in enumerate(route.response_classes):
        yield 1
        try:
            if not one.HasField("condition"):
                raise InvalidMessageError("missing condition")
            matched = yield from _statuses_of(one.condition, f"{where}: response class {index}", notes)
        except InvalidMessageError as error:
            notes.append(f"{where}: response class {index}: {error}")
            continue
        has_classes = True
        if one.is_failure:
            failures |= matched & ~seen
        else:
            successes |= matched & ~seen
        seen |= matched
    return ResponseClasses(_set_of(successes), _set_of(failures)), has_classes


@lru_cache(64)
def _set_of(statuses: int) -> frozenset[int]:
    """The statuses as a set, made once for equal ones: most routes have the same classes."""
    return frozenset(status for status in _STATUSES if statuses >> status & 1)


def _statuses_of(message: destination_pb2.ResponseMatch, where: str, notes: list[str]) -> Reading[int]:
    kind = kind_of(message, "match", "condition")
    if kind == "not":
        return _ALL & ~(yield from _statuses_of(getattr(message, "not"), where, notes))
    if kind == "status":
        low, high = message.status.min, message.status.max
        if low not in _STATUSES or high not in _STATUSES:
            raise InvalidMessageError(f"statuses {low} to {high}")
        return (1 << high + 1) - (1 << low) if low <= high else 0
    seq = message.all if kind == "all" else message.any
    parts: list[int] = []
    for one in seq.matches:
        try:
            parts.append((yield from _statuses_of(one, where, notes)))
        except InvalidMessageError as error:
            notes.append(f"{where}: a part of its condition: {error}")
        yield 1
    if not parts:
        raise InvalidMessageError(f"nothing is left of its `{kind}`")
    found = parts[0]
    for part in parts[1:]:
        found = found & part if kind == "all" else found | part
    return found


# ---- the retry budget


def _budget_of(message: destination_pb2.DestinationProfile, notes: list[str]) -> RetryBudget | None:
    if not message.HasField("retry_budget"):
        if any(route.is_retryable for route in message.routes):
            notes.append("retry budget: missing, so that no route is retried")
        return None
    budget = message.retry_budget
    try:
        ttl_s = required_s(budget, "ttl", "retry budget")
        if not _BUDGET_TTL_S[0] <= ttl_s <= _BUDGET_TTL_S[1]:
            raise InvalidMessageError(f"retry budget: a ttl of {ttl_s:g}s is not within 1s and 60s")
        if not 0.0 <= budget.retry_ratio <= _MOST_RATIO:
            raise InvalidMessageError(f"retry budget: a ratio of {budget.retry_ratio:g} is not within 0 and 1000")
        if budget.min_retries_per_second > _MOST_PER_S:
            raise InvalidMessageError(f"retry budget: {budget.min_retries_per_second} retries per second")
    except InvalidMessageError as error:
        notes.append(str(error))
        return None
    # The ratio is a 32-bit float, in which 0.1 is a little more than 0.1. Rounded, ten deposits of 0.1 pay for one retry.
    return RetryBudget(ttl_s, float(f"{budget.retry_ratio:.7g}"), budget.min_retries_per_second)
