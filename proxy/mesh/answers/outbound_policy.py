"""OutboundPolicies: what an outbound proxy does with traffic to an address or a name.

A service's port is balanced over its own endpoints, by the protocol that
its `appProtocol` or opaque-ports annotation names, else by detection. An
address of the cluster's networks that is no service is not found; one beyond
them is let through. Shapes: golden recording; reference: outbound, section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.duration_pb2 import Duration

from proxy.api import destination_pb2, http_route_pb2, meta_pb2, opaque_route_pb2
from proxy.api import outbound_pb2 as pb
from proxy.core.addr import Addr
from proxy.mesh.answers.question import INVALID_ARGUMENT, NOT_FOUND, Question, Refusal
from proxy.mesh.answers.workload import is_service_opaque
from proxy.mesh.kinds.services.service import BY_ADDRESS, SERVICE, FailureAccrual, Service
from proxy.mesh.manifests.kind import Key
from proxy.mesh.model import CLUSTER_DOMAIN
from proxy.mesh.net import (
    CLUSTER_NETWORKS,
    address_message,
    is_in,
    read_address,
    read_authority,
    service_key,
    service_meta,
)
from proxy.mesh.store.snapshot import View

_HTTP_1: Final = frozenset({"http"})
_HTTP_2: Final = frozenset({"kubernetes.io/h2c", "grpc"})
_EGRESS: Final = "egress-fallback"


def policy_for(request: pb.TrafficSpec) -> Question[pb.OutboundPolicy]:
    """OutboundPolicies/Watch and Get; Refusal if the target cannot be understood or cannot be a service."""
    target = request.WhichOneof("target")
    if target == "authority":
        return _named(request.authority)
    if target is None:
        raise Refusal(INVALID_ARGUMENT, "target is missing")
    try:
        return OutboundTo(read_address(request.addr), ("", ""))
    except ValueError as error:
        raise Refusal(INVALID_ARGUMENT, f"invalid target: {error}") from None


def _named(authority: str) -> Question[pb.OutboundPolicy]:
    try:
        host, port = read_authority(authority)
    except ValueError as error:
        raise Refusal(INVALID_ARGUMENT, f"invalid authority: {error}") from None
    key = service_key(host)
    if key is None:
        raise Refusal(NOT_FOUND, f"authority must be of the form <name>.<namespace>.svc.{CLUSTER_DOMAIN}")
    return OutboundTo(Addr("", port), key)


@dataclass(frozen=True, slots=True)
class OutboundTo(Question[pb.OutboundPolicy]):
    """What is done with traffic to an address or (without an IP) to a service's name."""

    target: Addr
    service: Key

    def answer(self, view: View) -> pb.OutboundPolicy | Refusal:
        target = self.target
        if target.ip:
            service = next(iter(view.found(BY_ADDRESS, target.ip)), None)
        else:
            service = view.one(SERVICE, self.service)
        if service is not None:
            return service_policy(service, target.port, is_service_opaque(view, service, target.port))
        if not target.ip or is_in(target.ip, CLUSTER_NETWORKS):
            return Refusal(NOT_FOUND, "No such service")
        return egress_policy(target)


def service_policy(service: Service, port: int, is_opaque: bool = False) -> pb.OutboundPolicy:
    """The policy of a service's port that no route speaks of."""
    meta = service_meta(service, port)
    defined = service.port(port)
    if defined is None:
        return pb.OutboundPolicy(protocol=pb.ProxyProtocol(opaque=_undefined_port()), metadata=meta)
    backend = _balanced(service, port)
    http1 = pb.ProxyProtocol.Http1(routes=[_http_route(backend)], failure_accrual=_accrual(service.accrual))
    http2 = pb.ProxyProtocol.Http2(routes=[_http_route(backend)], failure_accrual=_accrual(service.accrual))
    opaque = _opaque("opaq", backend)
    if is_opaque:
        protocol = pb.ProxyProtocol(opaque=opaque)
    elif not defined.app_protocol:
        protocol = pb.ProxyProtocol(detect=_detect(opaque, http1, http2))
    elif defined.app_protocol in _HTTP_1:
        protocol = pb.ProxyProtocol(http1=http1)
    elif defined.app_protocol in _HTTP_2:
        protocol = pb.ProxyProtocol(http2=http2)
    else:
        protocol = pb.ProxyProtocol(opaque=opaque)
    return pb.OutboundPolicy(protocol=protocol, metadata=meta)


def egress_policy(target: Addr) -> pb.OutboundPolicy:
    """An address beyond the cluster: forwarded to as it is."""
    meta = meta_pb2.Metadata(default=_EGRESS)
    forward = destination_pb2.WeightedAddr(addr=address_message(target), weight=1)
    backend = pb.Backend(metadata=meta, forward=forward, queue=_queue())
    routes = [_forward_route(backend)]
    detect = _detect(
        _opaque(_EGRESS, backend), pb.ProxyProtocol.Http1(routes=routes), pb.ProxyProtocol.Http2(routes=routes)
    )
    return pb.OutboundPolicy(protocol=pb.ProxyProtocol(detect=detect), metadata=meta)


def _detect(
    opaque: pb.ProxyProtocol.Opaque, http1: pb.ProxyProtocol.Http1, http2: pb.ProxyProtocol.Http2
) -> pb.ProxyProtocol.Detect:
    return pb.ProxyProtocol.Detect(timeout=Duration(seconds=10), opaque=opaque, http1=http1, http2=http2)


def _http_route(backend: pb.Backend) -> pb.HttpRoute:
    match = http_route_pb2.HttpRouteMatch(path=http_route_pb2.PathMatch(prefix="/"))
    rule = pb.HttpRoute.Rule(matches=[match], backends=_http_first(backend), timeouts=http_route_pb2.Timeouts())
    return pb.HttpRoute(metadata=meta_pb2.Metadata(default="http"), rules=[rule])


def _forward_route(backend: pb.Backend) -> pb.HttpRoute:
    rule = pb.HttpRoute.Rule(matches=[http_route_pb2.HttpRouteMatch()], backends=_http_first(backend))
    return pb.HttpRoute(metadata=meta_pb2.Metadata(default=_EGRESS), rules=[rule])


def _http_first(backend: pb.Backend) -> pb.HttpRoute.Distribution:
    first = pb.HttpRoute.Distribution.FirstAvailable(backends=[pb.HttpRoute.RouteBackend(backend=backend)])
    return pb.HttpRoute.Distribution(first_available=first)


def _opaque(name: str, backend: pb.Backend) -> pb.ProxyProtocol.Opaque:
    first = pb.OpaqueRoute.Distribution.FirstAvailable(backends=[pb.OpaqueRoute.RouteBackend(backend=backend)])
    rule = pb.OpaqueRoute.Rule(backends=pb.OpaqueRoute.Distribution(first_available=first))
    return pb.ProxyProtocol.Opaque(routes=[pb.OpaqueRoute(metadata=meta_pb2.Metadata(default=name), rules=[rule])])


def _undefined_port() -> pb.ProxyProtocol.Opaque:
    """A port that the service does not define: every connection is refused."""
    empty = pb.OpaqueRoute.Distribution(empty=pb.OpaqueRoute.Distribution.Empty())
    forbidden = pb.OpaqueRoute.Filter(forbidden=opaque_route_pb2.Forbidden())
    route = pb.OpaqueRoute(
        metadata=meta_pb2.Metadata(default="undefined-port"),
        rules=[pb.OpaqueRoute.Rule(backends=empty, filters=[forbidden])],
    )
    return pb.ProxyProtocol.Opaque(routes=[route])


def _balanced(service: Service, port: int) -> pb.Backend:
    destination = pb.Backend.EndpointDiscovery.DestinationGet(path=f"{service.fqn}:{port}")
    balance = pb.Backend.BalanceP2c(
        discovery=pb.Backend.EndpointDiscovery(dst=destination),
        peak_ewma=pb.Backend.BalanceP2c.PeakEwma(default_rtt=_duration(0.030), decay=_duration(10)),
    )
    return pb.Backend(metadata=service_meta(service, port), balancer=balance, queue=_queue())


def _queue() -> pb.Queue:
    return pb.Queue(capacity=100, failfast_timeout=_duration(3))


def _accrual(accrual: FailureAccrual | None) -> pb.FailureAccrual | None:
    if accrual is None:
        return None
    backoff = pb.ExponentialBackoff(
        min_backoff=_duration(accrual.min_penalty_s),
        max_backoff=_duration(accrual.max_penalty_s),
        jitter_ratio=accrual.jitter,
    )
    consecutive = pb.FailureAccrual.ConsecutiveFailures(max_failures=accrual.max_failures, backoff=backoff)
    return pb.FailureAccrual(consecutive_failures=consecutive)


def _duration(seconds: float) -> Duration:
    whole = int(seconds)
    return Duration(seconds=whole, nanos=round((seconds - whole) * 1e9))
