"""OutboundPolicy → ClientPolicy (docs/linkerd/outbound.md, section 6).

Any violation makes the whole message invalid; the error names the place
(`HTTP route 0: rule 1: backend 0: …`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from proxy.api import balancing_pb2, outbound_pb2
from proxy.control.convert.accrual import accrual_of
from proxy.control.convert.endpoint import endpoint_of
from proxy.control.convert.fields import InvalidMessageError, backoff_of, duration_s, kind_of, meta_of, required_s
from proxy.control.convert.route import (
    filter_of,
    host_of,
    read_grpc_match,
    read_http_match,
    suffix_of,
)
from proxy.core import limits
from proxy.core.address.names import name_and_port
from proxy.core.shares import Reading, at_once
from proxy.http import grpc
from proxy.policy import client
from proxy.policy.client import (
    Backend,
    Balance,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    Distribution,
    Fail,
    Forward,
    PeakEwmaLoad,
    PenaltyLoad,
    Retry,
    RouteBackend,
    StreamRoute,
    Timeouts,
    Tuning,
)
from proxy.policy.meta import Meta
from proxy.policy.routes.route import Filter, HostMatch, Unusable
from proxy.policy.routes.table import read_table

T = TypeVar("T")

_NO_TUNING: Final = Tuning()
_MAX_SLOW_START_S: Final = 86_400.0
_MAX_PROBE_SHARE: Final = 0.5
_MAX_RETRIES: Final = 65535
_STATUSES: Final = 599
_RETRY_CODES: Final = {
    "cancelled": grpc.CANCELLED,
    "deadine_exceeded": grpc.DEADLINE_EXCEEDED,  # the contract's spelling
    "resource_exhausted": grpc.RESOURCE_EXHAUSTED,
    "internal": grpc.INTERNAL,
    "unavailable": grpc.UNAVAILABLE,
}


def client_policy_of(message: outbound_pb2.OutboundPolicy) -> ClientPolicy:
    """Convert the message at once."""
    return at_once(read_client_policy(message))


def read_client_policy(message: outbound_pb2.OutboundPolicy) -> Reading[ClientPolicy]:
    """Convert the message; InvalidMessageError if any part of it breaks a rule."""
    meta = meta_of(message, "policy", True)
    if not message.HasField("protocol"):
        raise InvalidMessageError("policy: missing protocol")
    protocol = message.protocol
    kind = kind_of(protocol, "kind", "protocol")
    if kind == "detect":
        return (yield from _detect_of(meta, protocol.detect))
    if kind == "http1":
        http1 = protocol.http1
        routes = yield from _http_routes(http1.routes)
        table = yield from read_table(routes)
        return ClientPolicy(meta, client.HTTP_1, routes, http1_accrual=_accrual(http1), http1_table=table)
    if kind == "http2":
        http2 = protocol.http2
        routes = yield from _http_routes(http2.routes)
        table = yield from read_table(routes)
        return ClientPolicy(meta, client.HTTP_2, (), routes, http2_accrual=_accrual(http2), http2_table=table)
    if kind == "grpc":
        routes = yield from _each_read("gRPC route", protocol.grpc.routes, _grpc_route)
        table = yield from read_table(routes)
        return ClientPolicy(meta, client.GRPC, (), routes, http2_accrual=_accrual(protocol.grpc), http2_table=table)
    if kind == "tls":
        tls_routes = yield from _each_read("TLS route", protocol.tls.routes, _stream_route)
        return ClientPolicy(meta, client.TLS, tls_routes=tls_routes)
    return ClientPolicy(meta, client.OPAQUE, opaque_routes=(yield from _opaque_routes(protocol.opaque)))


def _detect_of(meta: Meta, detect: outbound_pb2.ProxyProtocol.Detect) -> Reading[ClientPolicy]:
    """The timeout in the message must be there but is not used, because the proxy has its own."""
    for part in ("timeout", "http1", "http2", "opaque"):
        if not detect.HasField(part):
            raise InvalidMessageError(f"detect: missing {part}")
    duration_s(detect, "timeout")
    http1_routes = yield from _http_routes(detect.http1.routes)
    http2_routes = yield from _http_routes(detect.http2.routes)
    return ClientPolicy(
        meta,
        client.DETECT,
        http1_routes,
        http2_routes,
        opaque_routes=(yield from _opaque_routes(detect.opaque)),
        http1_accrual=_accrual(detect.http1),
        http2_accrual=_accrual(detect.http2),
        http1_table=(yield from read_table(http1_routes)),
        http2_table=(yield from read_table(http2_routes)),
    )


def _each(what: str, messages: Iterable[Any], convert: Callable[[Any], T]) -> Reading[tuple[T, ...]]:
    """Convert all of them, with a pause after each; an error names the place in the list."""
    found: list[T] = []
    for index, message in enumerate(messages):
        try:
            found.append(convert(message))
        except InvalidMessageError as error:
            raise InvalidMessageError(f"{what} {index}: {error}") from None
        yield 1
    return tuple(found)


def _each_read(what: str, messages: Iterable[Any], read: Callable[[Any], Reading[T]]) -> Reading[tuple[T, ...]]:
    """Read all of them, with their own pauses; an error names the place in the list."""
    found: list[T] = []
    for index, message in enumerate(messages):
        try:
            found.append((yield from read(message)))
        except InvalidMessageError as error:
            raise InvalidMessageError(f"{what} {index}: {error}") from None
        yield 1
    return tuple(found)


def _accrual(
    protocol: outbound_pb2.ProxyProtocol.Http1 | outbound_pb2.ProxyProtocol.Http2 | outbound_pb2.ProxyProtocol.Grpc,
) -> client.FailureAccrual | None:
    return accrual_of(protocol.failure_accrual) if protocol.HasField("failure_accrual") else None


# ---- HTTP and gRPC routes


def _http_routes(routes: Iterable[outbound_pb2.HttpRoute]) -> Reading[tuple[ClientRoute, ...]]:
    return _each_read("HTTP route", routes, _http_route)


def _http_route(route: outbound_pb2.HttpRoute) -> Reading[ClientRoute]:
    return ClientRoute(
        meta_of(route, "route", True),
        (yield from _each("host", route.hosts, host_of)),
        (yield from _each_read("rule", route.rules, _http_rule)),
    )


def _grpc_route(route: outbound_pb2.GrpcRoute) -> Reading[ClientRoute]:
    return ClientRoute(
        meta_of(route, "route", True),
        (yield from _each("host", route.hosts, host_of)),
        (yield from _each_read("rule", route.rules, _grpc_rule)),
        is_grpc=True,
    )


def _http_rule(rule: outbound_pb2.HttpRoute.Rule) -> Reading[ClientRule]:
    return ClientRule(
        matches=(yield from _each_read("match", rule.matches, read_http_match)),
        filters=(yield from _each("filter", rule.filters, _filter_of)),
        distribution=(yield from _distribution_of(rule, _filter_of)),
        timeouts=_timeouts_of(rule),
        retry=_http_retry(rule.retry) if rule.HasField("retry") else None,
        allows_l5d_headers=rule.allow_l5d_request_headers,
    )


def _grpc_rule(rule: outbound_pb2.GrpcRoute.Rule) -> Reading[ClientRule]:
    return ClientRule(
        matches=(yield from _each_read("match", rule.matches, read_grpc_match)),
        filters=(yield from _each("filter", rule.filters, _filter_of)),
        distribution=(yield from _distribution_of(rule, _filter_of)),
        timeouts=_timeouts_of(rule),
        retry=_grpc_retry(rule.retry) if rule.HasField("retry") else None,
        allows_l5d_headers=rule.allow_l5d_request_headers,
    )


def _filter_of(message: outbound_pb2.HttpRoute.Filter | outbound_pb2.GrpcRoute.Filter) -> Filter:
    kind = kind_of(message, "kind", "filter")
    found = filter_of(kind, message)
    if found is None:
        raise InvalidMessageError(f"filter: the kind {kind} is not known")
    return found


def _timeouts_of(rule: outbound_pb2.HttpRoute.Rule | outbound_pb2.GrpcRoute.Rule) -> Timeouts:
    """The rule's old `requestTimeout` counts only where the new one is unset."""
    request_s = duration_s(rule.timeouts, "request")
    legacy_s = duration_s(rule, "requestTimeout")
    return Timeouts(
        request_s=legacy_s if request_s is None else request_s,
        response_s=duration_s(rule.timeouts, "response"),
        idle_s=duration_s(rule.timeouts, "idle"),
    )


def _http_retry(message: outbound_pb2.HttpRoute.Retry) -> Retry:
    if not message.HasField("conditions"):
        raise InvalidMessageError("retry: missing conditions")
    if message.max_retries > _MAX_RETRIES:
        raise InvalidMessageError(f"retry: {message.max_retries} retries")
    if len(message.conditions.status_ranges) > _STATUSES:
        raise InvalidMessageError(f"retry: {len(message.conditions.status_ranges)} ranges of statuses")
    statuses = tuple((one.start, one.end) for one in message.conditions.status_ranges)
    for start, end in statuses:
        if not 1 <= start <= end <= 599:
            raise InvalidMessageError(f"retry: statuses {start} to {end}")
    return Retry(
        message.max_retries,
        message.max_request_bytes,
        statuses=statuses,
        timeout_s=duration_s(message, "timeout"),
        backoff=backoff_of(message.backoff) if message.HasField("backoff") else None,
    )


def _grpc_retry(message: outbound_pb2.GrpcRoute.Retry) -> Retry:
    if not message.HasField("conditions"):
        raise InvalidMessageError("retry: missing conditions")
    conditions = message.conditions
    return Retry(
        message.max_retries,
        message.max_request_bytes,
        grpc_codes=frozenset(code for name, code in _RETRY_CODES.items() if getattr(conditions, name)),
        timeout_s=duration_s(message, "timeout"),
        backoff=backoff_of(message.backoff) if message.HasField("backoff") else None,
    )


# ---- opaque and TLS routes


def _opaque_routes(opaque: outbound_pb2.ProxyProtocol.Opaque) -> Reading[tuple[StreamRoute, ...]]:
    if len(opaque.routes) > 1:
        raise InvalidMessageError(f"opaque: {len(opaque.routes)} routes where at most one may be")
    return (yield from _each_read("opaque route", opaque.routes, _stream_route))


def _stream_route(route: outbound_pb2.OpaqueRoute | outbound_pb2.TlsRoute) -> Reading[StreamRoute]:
    meta = meta_of(route, "route", True)
    if len(route.rules) != 1:
        raise InvalidMessageError(f"{len(route.rules)} rules where one must be")
    rule = route.rules[0]
    snis: tuple[HostMatch, ...] = ()
    if isinstance(route, outbound_pb2.TlsRoute):
        snis = yield from _each("SNI", route.snis, _sni_of)
    refusal = ("", "")
    for one in rule.filters:
        refused = _refusal_of(one)
        refusal = refusal if refusal[0] else refused
    return StreamRoute(meta, (yield from _distribution_of(rule, _stream_filter)), snis, *refusal)


def _sni_of(message: Any) -> HostMatch:
    """Patterns of SNI are compared as they are (docs/linkerd/outbound.md, section 7.3)."""
    if kind_of(message, "match", "SNI") == "exact":
        return HostMatch(message.exact)
    return suffix_of(message.suffix.reverse_labels)


def _refusal_of(message: outbound_pb2.OpaqueRoute.Filter | outbound_pb2.TlsRoute.Filter) -> tuple[str, str]:
    if kind_of(message, "kind", "filter") == "forbidden":
        return client.FORBIDDEN, "forbidden"
    return client.INVALID_BACKEND, message.invalid.message


def _stream_filter(message: outbound_pb2.OpaqueRoute.Filter | outbound_pb2.TlsRoute.Filter) -> Filter:
    return Unusable(_refusal_of(message)[1])


# ---- backends


def _distribution_of(rule: Any, convert_filter: Callable[[Any], Filter]) -> Reading[Distribution]:
    if not rule.HasField("backends"):
        raise InvalidMessageError("missing distribution")
    distribution = rule.backends
    kind = kind_of(distribution, "kind", "distribution")
    if kind == "empty":
        return Distribution(client.EMPTY)
    weighted: Sequence[tuple[Any, int]]
    if kind == "first_available":
        name: client.DistributionKind = client.FIRST_AVAILABLE
        weighted = [(one, 1) for one in distribution.first_available.backends]
    else:
        name = client.RANDOM_AVAILABLE
        weighted = [(_unwrapped(one), one.weight) for one in distribution.random_available.backends]
    if len(weighted) > limits.BACKENDS:
        raise InvalidMessageError(f"a distribution of {len(weighted)} backends, where {limits.BACKENDS} may be")
    if not weighted:
        raise InvalidMessageError(f"a {name} distribution may not be empty")
    return Distribution(
        name,
        (yield from _each_read("backend", weighted, lambda pair: _route_backend(pair[0], pair[1], convert_filter))),
    )


def _unwrapped(weighted: Any) -> Any:
    if not weighted.HasField("backend"):
        raise InvalidMessageError("a weighted backend has no backend")
    return weighted.backend


def _route_backend(message: Any, weight: int, convert_filter: Callable[[Any], Filter]) -> Reading[RouteBackend]:
    if not message.HasField("backend"):
        raise InvalidMessageError("missing backend")
    backend = backend_of(message.backend)
    return RouteBackend(backend, weight, (yield from _each("filter", message.filters, convert_filter)))


def backend_of(message: outbound_pb2.Backend) -> Backend:
    """The queue in the message must be there but is not used, because the proxy has its own settings."""
    meta = meta_of(message, "backend", True)
    dispatch: Balance | Forward | Fail
    kind = message.WhichOneof("kind")
    if kind == "balancer":
        dispatch = _balance_of(message.balancer)
    elif kind == "forward":
        dispatch = Forward(*endpoint_of(message.forward, {}))
    else:
        namespace = f"{meta.namespace}/" if meta.namespace else ""
        dispatch = Fail(f"backend for {meta.kind} {namespace}{meta.name} has no dispatcher")
    if not message.HasField("queue"):
        raise InvalidMessageError("backend: missing queue")
    required_s(message.queue, "failfast_timeout", "queue")
    return Backend(meta, dispatch)


def _balance_of(message: outbound_pb2.Backend.BalanceP2c) -> Balance:
    if not message.HasField("discovery"):
        raise InvalidMessageError("balancer: missing discovery")
    kind_of(message.discovery, "kind", "discovery")
    try:
        path = name_and_port(message.discovery.dst.path)
    except ValueError as error:
        raise InvalidMessageError(f"discovery: {error}") from None
    return Balance(path, _load_of(message), _tuning_of(message))


def _tuning_of(message: outbound_pb2.Backend.BalanceP2c) -> Tuning:
    """Our own settings, in a field that Linkerd's messages do not have."""
    overlay = balancing_pb2.Overlay.FromString(message.SerializeToString())
    if not overlay.HasField("tuning"):
        return _NO_TUNING
    said = overlay.tuning
    slow_start_s = said.slow_start_s if said.HasField("slow_start_s") else None
    probe_share = said.probe_share if said.HasField("probe_share") else None
    if slow_start_s is not None and not 0.0 <= slow_start_s <= _MAX_SLOW_START_S:
        raise InvalidMessageError(f"balancer: slow start of {slow_start_s:g}s")
    if probe_share is not None and not 0.0 <= probe_share <= _MAX_PROBE_SHARE:
        raise InvalidMessageError(f"balancer: probe share {probe_share:g}")
    return Tuning(said.least_request if said.HasField("least_request") else None, slow_start_s, probe_share)


def _load_of(message: outbound_pb2.Backend.BalanceP2c) -> PeakEwmaLoad | PenaltyLoad:
    if kind_of(message, "load", "balancer") == "peak_ewma":
        return PeakEwmaLoad(
            required_s(message.peak_ewma, "default_rtt", "load"), required_s(message.peak_ewma, "decay", "load")
        )
    penalty = message.penalty_peak_ewma
    duration_s(penalty, "penalty_decay")

    def or_default(field: str, default_s: float) -> float:
        found_s = duration_s(penalty, field)
        return default_s if found_s is None else found_s

    usual = PenaltyLoad()
    return PenaltyLoad(
        default_rtt_s=or_default("default_rtt", usual.default_rtt_s),
        decay_s=or_default("decay", usual.decay_s),
        penalty_s=or_default("penalty", usual.penalty_s),
        max_retry_after_s=or_default("max_retry_after", usual.max_retry_after_s),
    )
