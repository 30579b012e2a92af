"""Routes, budgets and overrides of a ServiceProfile as messages."""

from __future__ import annotations

from typing import Final

from google.protobuf.duration_pb2 import Duration

from proxy.api import destination_pb2 as pb
from proxy.api import http_types_pb2
from proxy.mesh.kinds.services.service_profile import Condition, ProfileRoute, RetryBudget

_REGISTERED: Final = frozenset(http_types_pb2.HttpMethod.Registered.keys())


def route_message(route: ProfileRoute) -> pb.Route:
    return pb.Route(
        condition=_request(route.condition),
        response_classes=[
            pb.ResponseClass(condition=_response(one.condition), is_failure=one.is_failure)
            for one in route.response_classes
        ],
        metrics_labels={"route": route.name},
        is_retryable=route.is_retryable,
        timeout=duration(route.timeout_s) if route.timeout_s else None,
    )


def budget_message(budget: RetryBudget) -> pb.RetryBudget:
    return pb.RetryBudget(retry_ratio=budget.ratio, min_retries_per_second=budget.min_per_s, ttl=duration(budget.ttl_s))


def override_message(authority: str, weight: int, port: int) -> pb.WeightedDst:
    """An authority without a port takes the one that was asked for."""
    has_port = ":" in authority and not authority.endswith("]")
    return pb.WeightedDst(authority=authority if has_port else f"{authority}:{port}", weight=weight)


def duration(seconds: float) -> Duration:
    nanos = round(seconds * 1e9)
    return Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)


def _request(condition: Condition) -> pb.RequestMatch:
    if condition.all is not None:
        return pb.RequestMatch(all=pb.RequestMatch.Seq(matches=map(_request, condition.all)))
    if condition.any is not None:
        return pb.RequestMatch(any=pb.RequestMatch.Seq(matches=map(_request, condition.any)))
    if condition.negated is not None:
        message = pb.RequestMatch()
        getattr(message, "not").CopyFrom(_request(condition.negated))
        return message
    if condition.method:
        return pb.RequestMatch(method=_method(condition.method))
    return pb.RequestMatch(path=pb.PathMatch(regex=condition.path_regex))


def _method(name: str) -> http_types_pb2.HttpMethod:
    if name in _REGISTERED:
        return http_types_pb2.HttpMethod(registered=name)
    return http_types_pb2.HttpMethod(unregistered=name)


def _response(condition: Condition) -> pb.ResponseMatch:
    if condition.all is not None:
        return pb.ResponseMatch(all=pb.ResponseMatch.Seq(matches=map(_response, condition.all)))
    if condition.any is not None:
        return pb.ResponseMatch(any=pb.ResponseMatch.Seq(matches=map(_response, condition.any)))
    if condition.negated is not None:
        message = pb.ResponseMatch()
        getattr(message, "not").CopyFrom(_response(condition.negated))
        return message
    low, high = condition.statuses or (0, 0)
    return pb.ResponseMatch(status=pb.HttpStatusRange(min=low, max=high))
