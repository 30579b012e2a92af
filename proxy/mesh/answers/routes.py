"""Routes, budgets and overrides of a ServiceProfile as messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration

from proxy.api import destination_pb2 as pb
from proxy.api import http_types_pb2
from proxy.mesh.kinds.services.service_profile import Condition, ProfileRoute, RetryBudget

_REGISTERED: Final = frozenset(http_types_pb2.HttpMethod.Registered.keys())


def route_message(route: ProfileRoute) -> pb.Route:
    return pb.Route(
        condition=_match(pb.RequestMatch, route.condition, _request),
        response_classes=[
            pb.ResponseClass(condition=_match(pb.ResponseMatch, one.condition, _response), is_failure=one.is_failure)
            for one in route.response_classes
        ],
        metrics_labels={"route": route.name},
        is_retryable=route.is_retryable,
        timeout=duration(route.timeout_s) if route.timeout_s else None,
    )


def budget_message(budget: RetryBudget) -> pb.RetryBudget:
    return pb.RetryBudget(retry_ratio=budget.ratio, min_retries_per_second=budget.min_per_s, ttl=duration(budget.ttl_s))


def override_message(authority: str, weight: int, port: int) -> pb.WeightedDst:
    """An authority without a port gets the port that was asked for."""
    has_port = ":" in authority and not authority.endswith("]")
    return pb.WeightedDst(authority=authority if has_port else f"{authority}:{port}", weight=weight)


def duration(seconds: float) -> Duration:
    nanos = round(seconds * 1e9)
    return Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)


def _match(of: Any, condition: Condition, plain: Callable[[Condition], Any]) -> Any:
    """A condition as a RequestMatch or ResponseMatch (`of`): both are combined alike, and `plain` writes what is not a
    combination.
    """
    if condition.all is not None:
        return of(all=of.Seq(matches=[_match(of, one, plain) for one in condition.all]))
    if condition.any is not None:
        return of(any=of.Seq(matches=[_match(of, one, plain) for one in condition.any]))
    if condition.negated is not None:
        return of(**{"not": _match(of, condition.negated, plain)})
    return plain(condition)


def _request(condition: Condition) -> pb.RequestMatch:
    if condition.method:
        return pb.RequestMatch(method=_method(condition.method))
    return pb.RequestMatch(path=pb.PathMatch(regex=condition.path_regex))


def _response(condition: Condition) -> pb.ResponseMatch:
    low, high = condition.statuses or (0, 0)
    return pb.ResponseMatch(status=pb.HttpStatusRange(min=low, max=high))


def _method(name: str) -> http_types_pb2.HttpMethod:
    if name in _REGISTERED:
        return http_types_pb2.HttpMethod(registered=name)
    return http_types_pb2.HttpMethod(unregistered=name)
