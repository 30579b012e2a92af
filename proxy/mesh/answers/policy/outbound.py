"""OutboundPolicies: what an outbound proxy does with traffic to an address or a name.

An address is a service's, or lies in an egress network, or is beyond the cluster and let through; one of the cluster's networks that nothing is known of
is not found. Routes decide what is done: those of the destination's own namespace for all clients, those of a client's namespace
for its clients alone. Without routes a service's port is balanced over its own endpoints, by the protocol that its `appProtocol` or the
opaque-ports annotation names, else by detection. Shapes: the recording in tests/data/control-plane; docs/linkerd/outbound.md, section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from google.protobuf.duration_pb2 import Duration

from proxy.api import http_route_pb2, meta_pb2, opaque_route_pb2
from proxy.api import outbound_pb2 as pb
from proxy.core.address.addr import Addr
from proxy.mesh.answers.policy.backends import Target, accrual_message, default_backend, forward_backend
from proxy.mesh.answers.policy.inbound_server import by_age
from proxy.mesh.answers.policy.outbound_routes import (
    GRPC,
    HTTP,
    OPAQUE,
    TLS,
    Usual,
    default_route,
    egress_route,
    first_available,
    request_route,
    stream_route,
)
from proxy.mesh.answers.question import INVALID_ARGUMENT, NOT_FOUND, Question, Refusal
from proxy.mesh.answers.workload import is_service_opaque, read_workload_name
from proxy.mesh.kinds.policy.egress_network import EGRESS_NAMESPACE, EGRESS_NETWORKS, EgressNetwork
from proxy.mesh.kinds.routes.grpc_route import GRPC_ROUTES
from proxy.mesh.kinds.routes.http_route import GATEWAY_HTTP_ROUTES, POLICY_HTTP_ROUTES
from proxy.mesh.kinds.routes.parent import EGRESS_NETWORK as EGRESS
from proxy.mesh.kinds.routes.parent import SERVICE as SERVICE_PARENT
from proxy.mesh.kinds.routes.rule import Route
from proxy.mesh.kinds.routes.stream_route import StreamRoute
from proxy.mesh.kinds.routes.tcp_route import TCP_ROUTES
from proxy.mesh.kinds.routes.tls_route import TLS_ROUTES
from proxy.mesh.kinds.services.service import BY_ADDRESS, SERVICE, Service, ServicePort
from proxy.mesh.manifests.kind import Key, Table
from proxy.mesh.model import CLUSTER_DOMAIN
from proxy.mesh.net import CLUSTER_NETWORKS, is_in, read_address, read_authority, service_key, service_meta
from proxy.mesh.store.snapshot import View
from proxy.policy.client import Timeouts
from proxy.policy.protocol import DETECT, HTTP_1, HTTP_2
from proxy.policy.protocol import OPAQUE as AS_BYTES

R = TypeVar("R", Route, StreamRoute)

_APP_PROTOCOLS: Final = {"http": HTTP_1, "kubernetes.io/h2c": HTTP_2, "grpc": HTTP_2}
"""Protocols by `appProtocol`, in lower case; any other value is carried as bytes."""

_FALLBACK: Final = "egress-fallback"
_DETECT_TIMEOUT_S: Final = 10


def policy_for(request: pb.TrafficSpec) -> Question[pb.OutboundPolicy]:
    """OutboundPolicies/Watch and Get; Refusal if the target cannot be understood or cannot be a service."""
    try:
        source = read_workload_name(request.source_workload).namespace if request.source_workload else ""
    except ValueError as error:
        raise Refusal(INVALID_ARGUMENT, str(error)) from None
    target = request.WhichOneof("target")
    if target == "authority":
        return _named(request.authority, source)
    if target is None:
        raise Refusal(INVALID_ARGUMENT, "target is required")
    try:
        return OutboundTo(read_address(request.addr), ("", ""), source)
    except ValueError as error:
        raise Refusal(INVALID_ARGUMENT, f"invalid target: {error}") from None


def _named(authority: str, source: str) -> Question[pb.OutboundPolicy]:
    try:
        host, port = read_authority(authority)
    except ValueError as error:
        raise Refusal(INVALID_ARGUMENT, f"invalid authority: {error}") from None
    key = service_key(host)
    if key is None:
        raise Refusal(NOT_FOUND, f"authority must be of the form <name>.<namespace>.svc.{CLUSTER_DOMAIN}")
    return OutboundTo(Addr("", port), key, source)


@dataclass(frozen=True, slots=True)
class OutboundTo(Question[pb.OutboundPolicy]):
    """The policy for traffic to an address or (without an IP) to a service's name."""

    target: Addr
    service: Key
    source: str
    """The client's namespace."""

    def answer(self, view: View) -> pb.OutboundPolicy | Refusal:
        target = self.target
        if target.ip:
            service = next(iter(view.found(BY_ADDRESS, target.ip)), None)
        else:
            service = view.one(SERVICE, self.service)
        if service is not None:
            return service_policy(view, Target(service, target.port, target if target.ip else None), self.source)
        network = _egress_network(view, target.ip, self.source) if target.ip else None
        if network is not None:
            return _egress_policy(view, Target(network, target.port, target), self.source)
        if not target.ip or is_in(target.ip, CLUSTER_NETWORKS):
            return Refusal(NOT_FOUND, "No such service")
        return _fallback(target)


# ---- services


def service_policy(view: View, target: Target, source: str) -> pb.OutboundPolicy:
    """The policy of a service's port, for clients of the namespace `source`."""
    service, port = target.parent, target.port
    assert isinstance(service, Service)
    meta = service_meta(service, port)
    defined = service.port(port)
    if defined is None and service.external_name:
        # It has no address of its own, so what its name leads to may have any port.
        defined = ServicePort("", port, port)
    if defined is None:
        return pb.OutboundPolicy(protocol=pb.ProxyProtocol(opaque=_undefined_port()), metadata=meta)
    if defined.app_protocol:
        spoken = _APP_PROTOCOLS.get(defined.app_protocol.lower(), AS_BYTES)
    else:
        spoken = AS_BYTES if is_service_opaque(view, service, port) else DETECT
    backend = default_backend(target, spoken == AS_BYTES)
    return pb.OutboundPolicy(protocol=_Policy(view, target, source, backend).protocol(spoken), metadata=meta)


def _undefined_port() -> pb.ProxyProtocol.Opaque:
    """A port that the service does not define: every connection is refused."""
    empty = pb.OpaqueRoute.Distribution(empty=pb.OpaqueRoute.Distribution.Empty())
    forbidden = pb.OpaqueRoute.Filter(forbidden=opaque_route_pb2.Forbidden())
    rule = pb.OpaqueRoute.Rule(backends=empty, filters=[forbidden])
    return pb.ProxyProtocol.Opaque(
        routes=[pb.OpaqueRoute(metadata=meta_pb2.Metadata(default="undefined-port"), rules=[rule])]
    )


# ---- egress


def _egress_network(view: View, ip: str, source: str) -> EgressNetwork | None:
    """The narrowest network that contains the address: of the client's namespace if that has any network, else of the
    common one.
    """
    networks = view.found(EGRESS_NETWORKS, source) or view.found(EGRESS_NETWORKS, EGRESS_NAMESPACE)
    is_outside = not is_in(ip, CLUSTER_NETWORKS)
    found = [
        (one.size_of_match(ip) if one.networks else _EVERYTHING, one)
        for one in by_age(networks)
        if (one.size_of_match(ip) is not None if one.networks else is_outside)
    ]
    return min(found, key=lambda pair: pair[0] or 0)[1] if found else None


_EVERYTHING: Final = 1 << 129


def _egress_policy(view: View, target: Target, source: str) -> pb.OutboundPolicy:
    network = target.parent
    assert isinstance(network, EgressNetwork)
    spoken = AS_BYTES if target.port in network.opaque_ports else DETECT
    backend = default_backend(target, spoken == AS_BYTES)
    return pb.OutboundPolicy(protocol=_Policy(view, target, source, backend).protocol(spoken), metadata=target.meta)


def _fallback(target: Addr) -> pb.OutboundPolicy:
    """The policy for an address outside the cluster that is in no egress network: traffic is forwarded to it as it is."""
    meta = meta_pb2.Metadata(default=_FALLBACK)
    backend = forward_backend(target, meta, 1)
    every = pb.HttpRoute.Rule(matches=[http_route_pb2.HttpRouteMatch()], backends=first_available(backend, HTTP))
    routes = [pb.HttpRoute(metadata=meta, rules=[every])]
    opaque = [default_route(_FALLBACK, Usual(backend), OPAQUE)]
    return pb.OutboundPolicy(protocol=pb.ProxyProtocol(detect=_detect(opaque, routes, None)), metadata=meta)


def _detect(
    opaque: Iterable[pb.OpaqueRoute], routes: list[pb.HttpRoute], accrual: pb.FailureAccrual | None
) -> pb.ProxyProtocol.Detect:
    return pb.ProxyProtocol.Detect(
        timeout=Duration(seconds=_DETECT_TIMEOUT_S),
        opaque=pb.ProxyProtocol.Opaque(routes=opaque),
        http1=pb.ProxyProtocol.Http1(routes=routes, failure_accrual=accrual),
        http2=pb.ProxyProtocol.Http2(routes=routes, failure_accrual=accrual),
    )


# ---- routes


class _Policy:
    """The routes of one target, as one client's namespace sees them."""

    __slots__ = ("_view", "_target", "_source", "_network", "_usual", "_grpc_usual", "_accrual")

    def __init__(self, view: View, target: Target, source: str, backend: pb.Backend) -> None:
        parent = target.parent
        self._view = view
        self._target = target
        self._source = source
        self._network = parent if isinstance(parent, EgressNetwork) else None
        timeouts: Timeouts = parent.timeouts
        self._usual = Usual(backend, timeouts, parent.http_retry)
        self._grpc_usual = Usual(backend, timeouts, parent.grpc_retry)
        self._accrual: pb.FailureAccrual | None = None
        if isinstance(parent, Service):
            self._accrual = accrual_message(parent.accrual, parent.honors_retry_after)

    def protocol(self, spoken: str) -> pb.ProxyProtocol:
        """gRPC routes come before HTTP routes, these before TLS routes, these before TCP routes, as far as the port's
        protocol allows them.
        """
        if spoken == HTTP_1:
            http1 = pb.ProxyProtocol.Http1(routes=self._http_routes(), failure_accrual=self._accrual)
            return pb.ProxyProtocol(http1=http1)
        if spoken == AS_BYTES:
            return pb.ProxyProtocol(opaque=pb.ProxyProtocol.Opaque(routes=self._opaque_routes()))
        grpc = self._found(GRPC_ROUTES)
        if grpc:
            return pb.ProxyProtocol(grpc=self._grpc(grpc))
        if spoken == HTTP_2:
            http2 = pb.ProxyProtocol.Http2(routes=self._http_routes(), failure_accrual=self._accrual)
            return pb.ProxyProtocol(http2=http2)
        if not self._found(POLICY_HTTP_ROUTES) and not self._found(GATEWAY_HTTP_ROUTES):
            tls = self._found(TLS_ROUTES)
            if tls:
                return pb.ProxyProtocol(tls=self._tls(tls))
            if self._found(TCP_ROUTES):
                return pb.ProxyProtocol(opaque=pb.ProxyProtocol.Opaque(routes=self._opaque_routes()))
        return pb.ProxyProtocol(detect=_detect([self._default_opaque()], self._http_routes(), self._accrual))

    def _found(self, *tables: Table[R]) -> list[R]:
        target = self._target.parent
        kind = SERVICE_PARENT if self._network is None else EGRESS
        key = (kind, target.namespace, target.name)
        namespaces = (target.namespace, self._source)
        return by_age(
            route
            for table in tables
            for route in self._view.found(table, key)
            if route.namespace in namespaces and self._is_of_port(route, key)
        )

    def _is_of_port(self, route: Route | StreamRoute, key: tuple[str, str, str]) -> bool:
        return any(
            (one.kind, one.namespace, one.name) == key and one.port in (0, self._target.port) for one in route.parents
        )

    def _http_routes(self) -> list[pb.HttpRoute]:
        found = self._found(POLICY_HTTP_ROUTES, GATEWAY_HTTP_ROUTES)
        routes: list[Any] = [request_route(self._view, route, self._target, self._usual) for route in found]
        if self._network is not None:
            routes.append(egress_route(self._usual, HTTP, self._network.is_allowed))
        return routes or [default_route("http", self._usual, HTTP)]

    def _grpc(self, found: list[Route]) -> pb.ProxyProtocol.Grpc:
        routes: list[Any] = [request_route(self._view, route, self._target, self._grpc_usual) for route in found]
        if self._network is not None:
            routes.append(egress_route(self._grpc_usual, GRPC, self._network.is_allowed))
        return pb.ProxyProtocol.Grpc(routes=routes, failure_accrual=self._accrual)

    def _tls(self, found: list[StreamRoute]) -> pb.ProxyProtocol.Tls:
        routes: list[Any] = [stream_route(self._view, route, self._target, self._usual) for route in found]
        if self._network is not None:
            routes.append(egress_route(self._usual, TLS, self._network.is_allowed))
        return pb.ProxyProtocol.Tls(routes=routes)

    def _opaque_routes(self) -> list[pb.OpaqueRoute]:
        """If there are several TCP routes, only the oldest counts: nothing about a connection could decide which one
        to take.
        """
        found = self._found(TCP_ROUTES)
        if not found:
            return [self._default_opaque()]
        return [stream_route(self._view, found[0], self._target, self._usual)]

    def _default_opaque(self) -> Any:
        if self._network is not None:
            return egress_route(self._usual, OPAQUE, self._network.is_allowed)
        return default_route("opaq", self._usual, OPAQUE)
