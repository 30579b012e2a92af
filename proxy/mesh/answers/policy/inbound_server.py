"""What an inbound port admits, from the policy objects that select it.

The oldest Server that selects the workload and its port counts (by name, where no age is known); without one the default policy of the workload does.
Routes that are attached to the Server determine which requests it takes, and from which clients beside those that the Server lets in.
Shapes: the recording of the control plane in tests/data/control-plane; docs/linkerd/inbound.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.duration_pb2 import Duration

from proxy.api import http_route_pb2, meta_pb2
from proxy.api import inbound_pb2 as pb
from proxy.mesh.answers.policy.authorization import (
    authorizations_for,
    default_authorizations,
    probe_authorizations,
    server_authorizations,
)
from proxy.mesh.answers.policy.route_messages import (
    grpc_match_message,
    host_message,
    http_match_message,
    redirect_message,
    request_modifier_message,
)
from proxy.mesh.kinds.policy.authentication.network import Cidr
from proxy.mesh.kinds.policy.rate_limit import LIMITS_BY_SERVER, RateLimit
from proxy.mesh.kinds.policy.reference import POLICY, Reference
from proxy.mesh.kinds.policy.server import SERVERS, Server
from proxy.mesh.kinds.policy.server_policy import SERVER_POLICIES
from proxy.mesh.kinds.routes.grpc_route import GRPC_ROUTES
from proxy.mesh.kinds.routes.http_route import GATEWAY_HTTP_ROUTES, POLICY_HTTP_ROUTES
from proxy.mesh.kinds.routes.parent import SERVER
from proxy.mesh.kinds.routes.rule import Route, Rule
from proxy.mesh.store.snapshot import View
from proxy.policy.routes.route import Filter, GrpcMatch, HeaderModifier, HttpMatch, PathMatch, Redirect

DETECT_TIMEOUT_S: Final = 10


class WorkloadPort(NamedTuple):
    """A port of a workload, and what policies may need to know of the workload, whatever its kind."""

    namespace: str
    is_pod: bool
    labels: Mapping[str, str]
    number: int
    names: frozenset[str]
    """The names that the workload gives to this port."""
    default_policy: str
    """One of model.DEFAULT_POLICIES."""
    is_opaque: bool = False
    needs_identity: bool = False
    """Whether the default policy lets in only clients with an identity here."""
    probe_paths: tuple[str, ...] = ()
    probe_networks: tuple[Cidr, ...] = ()


def server_of(view: View, port: WorkloadPort) -> pb.Server:
    server = _selected(view, port)
    if server is None:
        return _default_server(port)
    return pb.Server(
        protocol=_protocol(view, server, port),
        authorizations=server_authorizations(view, server),
        labels={"group": POLICY, "kind": "server", "name": server.name},
    )


def by_age(found: Iterable[Any]) -> list[Any]:
    """The oldest first; objects of unknown age come last, by name."""
    return sorted(found, key=lambda one: (not one.created_at, one.created_at, one.name))


def _selected(view: View, port: WorkloadPort) -> Server | None:
    servers: list[Server] = by_age(view.found(SERVERS, port.namespace))
    servers += [one for policy in view.found(SERVER_POLICIES, port.namespace) for one in policy.servers()]
    for server in servers:
        is_port = server.port == port.number or server.port in port.names
        if is_port and server.selects_pods is port.is_pod and server.selector.matches(port.labels):
            return server
    return None


def _default_server(port: WorkloadPort) -> pb.Server:
    """The policy of a port that no object selects."""
    policy = port.default_policy
    if port.needs_identity and policy.endswith("-unauthenticated"):
        policy = policy.replace("-unauthenticated", "-authenticated")
    labels = {"group": "", "kind": "default", "name": policy}
    if port.is_opaque:
        protocol = pb.ProxyProtocol(opaque=pb.ProxyProtocol.Opaque())
    else:
        protocol = pb.ProxyProtocol(detect=_detect(_default_routes(port)))
    return pb.Server(protocol=protocol, authorizations=default_authorizations(policy), labels=labels)


def _detect(routes: Sequence[pb.HttpRoute], limit: pb.HttpLocalRateLimit | None = None) -> pb.ProxyProtocol.Detect:
    return pb.ProxyProtocol.Detect(
        timeout=Duration(seconds=DETECT_TIMEOUT_S), http_routes=routes, http_local_rate_limit=limit
    )


def _protocol(view: View, server: Server, port: WorkloadPort) -> pb.ProxyProtocol:
    protocol = server.protocol
    if protocol == "opaque":
        return pb.ProxyProtocol(opaque=pb.ProxyProtocol.Opaque())
    if protocol == "TLS":
        return pb.ProxyProtocol(tls=pb.ProxyProtocol.Tls())
    if protocol == "gRPC":
        return pb.ProxyProtocol(grpc=pb.ProxyProtocol.Grpc(routes=_grpc_routes(view, server)))
    routes = _http_routes(view, server) or _default_routes(port)
    limit = _rate_limit(view, server)
    if protocol == "HTTP/1":
        return pb.ProxyProtocol(http1=pb.ProxyProtocol.Http1(routes=routes, local_rate_limit=limit))
    if protocol == "HTTP/2":
        return pb.ProxyProtocol(http2=pb.ProxyProtocol.Http2(routes=routes, local_rate_limit=limit))
    return pb.ProxyProtocol(detect=_detect(routes, limit))


# ---- routes


def _default_routes(port: WorkloadPort) -> list[pb.HttpRoute]:
    """A route for all requests, with the server's authorizations; and one for declared probes, from the networks of
    probes.
    """
    routes = []
    if port.probe_paths and port.probe_networks:
        matches = [HttpMatch(PathMatch(exact=path), method="GET") for path in port.probe_paths]
        routes.append(
            pb.HttpRoute(
                metadata=meta_pb2.Metadata(default="probe"),
                authorizations=probe_authorizations(port.probe_networks),
                rules=[pb.HttpRoute.Rule(matches=[http_match_message(match) for match in matches])],
            )
        )
    match = http_route_pb2.HttpRouteMatch(path=http_route_pb2.PathMatch(prefix="/"))
    every = pb.HttpRoute(metadata=meta_pb2.Metadata(default="default"), rules=[pb.HttpRoute.Rule(matches=[match])])
    return [every, *routes]


def _http_routes(view: View, server: Server) -> list[pb.HttpRoute]:
    key = (SERVER, server.namespace, server.name)
    found = by_age((*view.found(GATEWAY_HTTP_ROUTES, key), *view.found(POLICY_HTTP_ROUTES, key)))
    return [
        pb.HttpRoute(
            metadata=route_meta(route),
            hosts=[host_message(one) for one in route.hosts],
            authorizations=authorizations_for(view, _as_target(route)),
            rules=[_http_rule(rule) for rule in route.rules],
        )
        for route in found
    ]


def _grpc_routes(view: View, server: Server) -> list[pb.GrpcRoute]:
    found = by_age(view.found(GRPC_ROUTES, (SERVER, server.namespace, server.name)))
    if not found:
        every = pb.GrpcRoute.Rule(matches=[grpc_match_message(GrpcMatch())])
        return [pb.GrpcRoute(metadata=meta_pb2.Metadata(default="default"), rules=[every])]
    return [
        pb.GrpcRoute(
            metadata=route_meta(route),
            hosts=[host_message(one) for one in route.hosts],
            authorizations=authorizations_for(view, _as_target(route)),
            rules=[_grpc_rule(rule) for rule in route.rules],
        )
        for route in found
    ]


def _as_target(route: Route) -> Reference:
    return Reference(route.group, route.kind, route.namespace, route.name)


def route_meta(route: Route) -> meta_pb2.Metadata:
    """The route's metadata, without its namespace, which on this side is the server's."""
    return meta_pb2.Metadata(resource=meta_pb2.Resource(group=route.group, kind=route.kind, name=route.name))


def _http_rule(rule: Rule) -> pb.HttpRoute.Rule:
    matches = [http_match_message(match) for match in rule.matches if isinstance(match, HttpMatch)]
    filters = [message for one in rule.filters if (message := _http_filter(one)) is not None]
    return pb.HttpRoute.Rule(matches=matches, filters=filters)


def _http_filter(one: Filter) -> pb.HttpRoute.Filter | None:
    """None for a filter that only changes responses, because inbound proxies have no such filter."""
    if isinstance(one, HeaderModifier):
        return None if one.on_response else pb.HttpRoute.Filter(request_header_modifier=request_modifier_message(one))
    assert isinstance(one, Redirect), one
    return pb.HttpRoute.Filter(redirect=redirect_message(one))


def _grpc_rule(rule: Rule) -> pb.GrpcRoute.Rule:
    matches = [grpc_match_message(match) for match in rule.matches if isinstance(match, GrpcMatch)]
    filters = [
        pb.GrpcRoute.Filter(request_header_modifier=request_modifier_message(one))
        for one in rule.filters
        if isinstance(one, HeaderModifier) and not one.on_response
    ]
    return pb.GrpcRoute.Rule(matches=matches, filters=filters)


# ---- rate limits


def _rate_limit(view: View, server: Server) -> pb.HttpLocalRateLimit | None:
    """If a server has several, the oldest counts, because Linkerd accepts no other."""
    found: list[RateLimit] = by_age(view.found(LIMITS_BY_SERVER, server.key))
    if not found:
        return None
    one = found[0]
    message = pb.HttpLocalRateLimit(
        metadata=meta_pb2.Metadata(
            resource=meta_pb2.Resource(group=POLICY, kind="HTTPLocalRateLimitPolicy", name=one.name)
        ),
        overrides=[_override(limit, identities) for limit, identities in one.overrides],
    )
    if one.total:
        message.total.requestsPerSecond = one.total
    if one.per_identity:
        message.identity.requestsPerSecond = one.per_identity
    return message


def _override(limit: int, identities: Iterable[str]) -> pb.HttpLocalRateLimit.Override:
    return pb.HttpLocalRateLimit.Override(
        limit=pb.HttpLocalRateLimit.Limit(requestsPerSecond=limit),
        clients=pb.HttpLocalRateLimit.Override.ClientIdentities(
            identities=[pb.Identity(name=one) for one in identities]
        ),
    )
