"""Routes of outbound policies as messages. The four kinds of routes have messages of one shape, which is made once for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from proxy.api import grpc_route_pb2, http_route_pb2, meta_pb2, opaque_route_pb2
from proxy.api import outbound_pb2 as pb
from proxy.http import grpc
from proxy.mesh.answers.policy.backends import Backend, Target, backend_of, backoff_message, duration
from proxy.mesh.answers.policy.route_messages import (
    grpc_match_message,
    host_message,
    http_match_message,
    redirect_message,
    request_modifier_message,
    response_modifier_message,
    sni_message,
)
from proxy.mesh.kinds.routes.parent import BackendRef
from proxy.mesh.kinds.routes.rule import Route, Rule
from proxy.mesh.kinds.routes.stream_route import StreamRoute
from proxy.mesh.store.snapshot import View
from proxy.policy.client import Retry, Timeouts
from proxy.policy.routes.route import Filter, GrpcMatch, HeaderModifier, HttpMatch, Redirect

_CODES: Final = {
    grpc.CANCELLED: "cancelled",
    grpc.DEADLINE_EXCEEDED: "deadine_exceeded",  # the contract's spelling
    grpc.RESOURCE_EXHAUSTED: "resource_exhausted",
    grpc.INTERNAL: "internal",
    grpc.UNAVAILABLE: "unavailable",
}
_DENIED: Final = "traffic not allowed"


class Family(NamedTuple):
    """The differences between the messages of the kinds of routes."""

    route: Any
    """pb.HttpRoute or its like, with its nested messages."""
    name: str
    """The name of the kind in the names of routes that the control plane makes itself."""
    filter: Callable[[Filter], Any]
    """The message of a filter; None if proxies know none for this kind."""
    fail: Callable[[str], Any]
    """Makes the filter that fails every request with a text."""
    deny: Callable[[], Any]
    """Makes the filter that answers that the traffic is not allowed."""


def _http_filter(one: Filter) -> pb.HttpRoute.Filter:
    if isinstance(one, HeaderModifier):
        if one.on_response:
            return pb.HttpRoute.Filter(response_header_modifier=response_modifier_message(one))
        return pb.HttpRoute.Filter(request_header_modifier=request_modifier_message(one))
    assert isinstance(one, Redirect), one
    return pb.HttpRoute.Filter(redirect=redirect_message(one))


def _grpc_filter(one: Filter) -> pb.GrpcRoute.Filter | None:
    if isinstance(one, HeaderModifier) and not one.on_response:
        return pb.GrpcRoute.Filter(request_header_modifier=request_modifier_message(one))
    return None


def _http_failure(status: int, text: str) -> pb.HttpRoute.Filter:
    return pb.HttpRoute.Filter(failure_injector=http_route_pb2.HttpFailureInjector(status=status, message=text))


def _grpc_failure(code: int, text: str) -> pb.GrpcRoute.Filter:
    return pb.GrpcRoute.Filter(failure_injector=grpc_route_pb2.GrpcFailureInjector(code=code, message=text))


def _no_filter(one: Filter) -> None:
    raise AssertionError(f"routes of connections have no filters: {one}")


HTTP: Final = Family(
    pb.HttpRoute, "http", _http_filter, lambda text: _http_failure(500, text), lambda: _http_failure(403, _DENIED)
)
GRPC: Final = Family(
    pb.GrpcRoute,
    "grpc",
    _grpc_filter,
    lambda text: _grpc_failure(grpc.INTERNAL, text),
    lambda: _grpc_failure(grpc.PERMISSION_DENIED, _DENIED),
)
OPAQUE: Final = Family(
    pb.OpaqueRoute,
    "tcp",
    _no_filter,
    lambda text: pb.OpaqueRoute.Filter(invalid=opaque_route_pb2.Invalid(message=text)),
    lambda: pb.OpaqueRoute.Filter(forbidden=opaque_route_pb2.Forbidden()),
)
TLS: Final = Family(
    pb.TlsRoute,
    "tls",
    _no_filter,
    lambda text: pb.TlsRoute.Filter(invalid=opaque_route_pb2.Invalid(message=text)),
    lambda: pb.TlsRoute.Filter(forbidden=opaque_route_pb2.Forbidden()),
)


class Usual(NamedTuple):
    """The settings of rules that have none themselves: those of the service's annotations, and the backend of its
    traffic.
    """

    backend: pb.Backend
    timeouts: Timeouts = Timeouts()
    retry: Retry | None = None


def request_route(view: View, route: Route, target: Target, usual: Usual) -> Any:
    family = GRPC if route.is_grpc else HTTP
    return family.route(
        metadata=_meta(route),
        hosts=[host_message(one) for one in route.hosts],
        rules=[_request_rule(view, rule, target, usual, family) for rule in route.rules],
    )


def stream_route(view: View, route: StreamRoute, target: Target, usual: Usual) -> Any:
    family = TLS if route.kind == "TLSRoute" else OPAQUE
    rule = family.route.Rule(backends=_distribution(view, route.backends, target, usual, family))
    message = family.route(metadata=_meta(route), rules=[rule])
    if route.snis:
        message.snis.extend(sni_message(one) for one in route.snis)
    return message


def _meta(route: Route | StreamRoute) -> meta_pb2.Metadata:
    return meta_pb2.Metadata(
        resource=meta_pb2.Resource(group=route.group, kind=route.kind, namespace=route.namespace, name=route.name)
    )


def _request_rule(view: View, rule: Rule, target: Target, usual: Usual, family: Family) -> Any:
    timeouts = rule.timeouts if rule.timeouts != Timeouts() else usual.timeouts
    message = family.route.Rule(
        matches=[_match(one) for one in rule.matches],
        filters=[one for given in rule.filters if (one := family.filter(given)) is not None],
        backends=_distribution(view, rule.backends, target, usual, family),
    )
    return _with_patience(message, timeouts, rule.retry or usual.retry, family)


def _match(match: HttpMatch | GrpcMatch) -> Any:
    return http_match_message(match) if isinstance(match, HttpMatch) else grpc_match_message(match)


def _distribution(view: View, refs: Iterable[BackendRef], target: Target, usual: Usual, family: Family) -> Any:
    """Drawn by weight among the references; without any, the resource that the route is attached to."""
    weighted = [_weighted(backend_of(view, ref, target), ref, family) for ref in refs]
    if not weighted:
        return first_available(usual.backend, family)
    distribution = family.route.Distribution
    return distribution(random_available=distribution.RandomAvailable(backends=weighted))


def first_available(backend: pb.Backend, family: Family) -> Any:
    distribution = family.route.Distribution
    only = family.route.RouteBackend(backend=backend)
    return distribution(first_available=distribution.FirstAvailable(backends=[only]))


def _weighted(backend: Backend, ref: BackendRef, family: Family) -> Any:
    if backend.fault:
        filters = [family.fail(backend.fault)]
    else:
        filters = [one for given in ref.filters if (one := family.filter(given)) is not None]
    through = family.route.RouteBackend(backend=backend.message, filters=filters)
    return family.route.WeightedRouteBackend(backend=through, weight=ref.weight)


# ---- routes that the control plane makes itself


def default_route(name: str, usual: Usual, family: Family, filters: Iterable[Any] = ()) -> Any:
    """A route on which everything goes to the usual backend, unless a filter refuses it."""
    rule = family.route.Rule(backends=first_available(usual.backend, family), filters=filters)
    if family is HTTP:
        rule.matches.append(http_match_message(HttpMatch()))
    if family is HTTP or family is GRPC:
        _with_patience(rule, usual.timeouts, usual.retry, family)
    return family.route(metadata=meta_pb2.Metadata(default=name), rules=[rule])


def egress_route(usual: Usual, family: Family, is_allowed: bool) -> Any:
    """The route of an egress network for traffic that none of its routes matches."""
    name = f"{family.name}-egress-{'allow' if is_allowed else 'deny'}"
    return default_route(name, usual, family, () if is_allowed else (family.deny(),))


# ---- timeouts and retries


def _with_patience(rule: Any, timeouts: Timeouts, retry: Retry | None, family: Family) -> Any:
    rule.timeouts.SetInParent()
    for name, seconds in (
        ("request", timeouts.request_s),
        ("response", timeouts.response_s),
        ("idle", timeouts.idle_s),
    ):
        if seconds is not None:
            getattr(rule.timeouts, name).CopyFrom(duration(seconds))
    if timeouts.request_s is not None:
        rule.requestTimeout.CopyFrom(duration(timeouts.request_s))  # as old proxies read it
    if retry is not None:
        rule.retry.CopyFrom(_retry(retry, family))
    return rule


def _retry(retry: Retry, family: Family) -> Any:
    message = family.route.Retry(max_retries=retry.max_retries, max_request_bytes=retry.max_request_bytes)
    message.conditions.SetInParent()
    if family is HTTP:
        message.conditions.status_ranges.extend(
            pb.HttpRoute.Retry.Conditions.StatusRange(start=start, end=end) for start, end in retry.statuses
        )
    else:
        for code in retry.grpc_codes:
            setattr(message.conditions, _CODES[code], True)
    if retry.timeout_s is not None:
        message.timeout.CopyFrom(duration(retry.timeout_s))
    if retry.backoff is not None:
        message.backoff.CopyFrom(backoff_message(retry.backoff))
    return message
