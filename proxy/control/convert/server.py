"""inbound.Server → ServerPolicy (docs/linkerd/inbound.md, section 5).

Any violation makes the whole message invalid. Clients on localhost are
always let in, by an authorization of ours at the end of each list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from proxy.api import inbound_pb2, net_pb2
from proxy.control.convert.fields import InvalidMessageError, bounded, kind_of, meta_of, network_of, required_s
from proxy.control.convert.route import (
    filter_of,
    host_of,
    read_grpc_match,
    read_http_match,
)
from proxy.core import limits
from proxy.core.shares import Reading, at_once, each, each_read, each_small
from proxy.policy import server
from proxy.policy.meta import Meta, default_meta
from proxy.policy.routes.route import Filter, Unusable
from proxy.policy.routes.table import read_table
from proxy.policy.server import (
    Authentication,
    Authorization,
    NetworkMatch,
    RateLimit,
    ServerPolicy,
    ServerRoute,
    ServerRule,
)

_LOCALHOST: Final = Authorization(
    default_meta("localhost"),
    (NetworkMatch(IPv4Network("127.0.0.1/32")), NetworkMatch(IPv6Network("::1/128"))),
    Authentication(),
)

_NETWORKS_PER_PART: Final = 16

_UNKNOWN_FILTER: Final = Unusable("invalid server policy: server policy configured with unknown filter")

Authorizations = tuple[Authorization, ...]


def server_policy_of(message: inbound_pb2.Server, lets_localhost_in: bool = True) -> ServerPolicy:
    """Convert the message at once."""
    return at_once(read_server_policy(message, lets_localhost_in))


def read_server_policy(message: inbound_pb2.Server, lets_localhost_in: bool = True) -> Reading[ServerPolicy]:
    """Convert the message; InvalidMessageError if any part of it breaks a rule.

    Clients on this machine's loopback are let in, as in Linkerd's proxy, unless the mesh itself is on loopback,
    where that would let in every client.
    """
    if not message.HasField("protocol"):
        raise InvalidMessageError("server: missing protocol")
    protocol = message.protocol
    kind = kind_of(protocol, "kind", "protocol")
    added = (_LOCALHOST,) if lets_localhost_in else ()
    authorizations = (*(yield from each_read(message.authorizations, _read_authorization)), *added)
    meta = _meta_of_labels(message.labels, "server")
    if kind == "detect":
        detect = protocol.detect
        routes = yield from _http_routes(detect.http_routes, Parents(authorizations))
        return ServerPolicy(
            meta,
            server.DETECT,
            authorizations,
            routes,
            required_s(detect, "timeout", "detect"),
            (yield from _rate_limit_of(detect.http_local_rate_limit)),
            table=(yield from read_table(routes)),
        )
    if kind == "http1":
        routes = yield from _http_routes(protocol.http1.routes, Parents(authorizations))
        limit = yield from _rate_limit_of(protocol.http1.local_rate_limit)
        table = yield from read_table(routes)
        return ServerPolicy(meta, server.HTTP_1, (), routes, rate_limit=limit, table=table)
    if kind == "http2":
        routes = yield from _http_routes(protocol.http2.routes, Parents(authorizations))
        limit = yield from _rate_limit_of(protocol.http2.local_rate_limit)
        table = yield from read_table(routes)
        return ServerPolicy(meta, server.HTTP_2, (), routes, rate_limit=limit, table=table)
    if kind == "grpc":
        routes = yield from _grpc_routes(protocol.grpc.routes, Parents(authorizations))
        return ServerPolicy(meta, server.GRPC, (), routes, table=(yield from read_table(routes)))
    return ServerPolicy(meta, server.TLS if kind == "tls" else server.OPAQUE, authorizations)


# ---- routes


class Parents:
    """The server's authorizations, which each route has after its own. Routes without any share one list."""

    __slots__ = ("authorizations", "_copied")

    def __init__(self, authorizations: Authorizations) -> None:
        self.authorizations: Final = authorizations
        self._copied = 0

    def after(self, own: Authorizations) -> Authorizations:
        if not own:
            return self.authorizations
        self._copied += len(self.authorizations)
        if self._copied > limits.ROUTE_AUTHORIZATIONS:
            raise InvalidMessageError(
                f"authorizations: {len(self.authorizations)} of the server for each of too many routes with their own"
            )
        return *own, *self.authorizations


def _http_routes(routes: Sequence[inbound_pb2.HttpRoute], parents: Parents) -> Reading[tuple[ServerRoute, ...]]:
    if not routes:
        return (ServerRoute(default_meta("default"), (), parents.authorizations, (ServerRule(()),)),)
    return (yield from each_read(routes, lambda route: _http_route(route, parents)))


def _http_route(route: inbound_pb2.HttpRoute, parents: Parents) -> Reading[ServerRoute]:
    return ServerRoute(
        meta_of(route, "HTTP route", False),
        (yield from each(route.hosts, host_of)),
        parents.after((yield from each_read(route.authorizations, _read_authorization))),
        (yield from each_read(route.rules, _http_rule)),
    )


def _grpc_routes(routes: Sequence[inbound_pb2.GrpcRoute], parents: Parents) -> Reading[tuple[ServerRoute, ...]]:
    if not routes:
        return (ServerRoute(default_meta("default"), (), parents.authorizations, (ServerRule(()),), is_grpc=True),)
    return (yield from each_read(routes, lambda route: _grpc_route(route, parents)))


def _grpc_route(route: inbound_pb2.GrpcRoute, parents: Parents) -> Reading[ServerRoute]:
    return ServerRoute(
        meta_of(route, "gRPC route", False),
        (yield from each(route.hosts, host_of)),
        parents.after((yield from each_read(route.authorizations, _read_authorization))),
        (yield from each_read(route.rules, _grpc_rule)),
        is_grpc=True,
    )


def _http_rule(rule: inbound_pb2.HttpRoute.Rule) -> Reading[ServerRule]:
    matches = yield from each_read(rule.matches, read_http_match)
    return ServerRule(matches, (yield from each(rule.filters, _filter_of)))


def _grpc_rule(rule: inbound_pb2.GrpcRoute.Rule) -> Reading[ServerRule]:
    matches = yield from each_read(rule.matches, read_grpc_match)
    return ServerRule(matches, (yield from each(rule.filters, _filter_of)))


def _filter_of(message: inbound_pb2.HttpRoute.Filter | inbound_pb2.GrpcRoute.Filter) -> Filter:
    return filter_of(message.WhichOneof("kind"), message) or _UNKNOWN_FILTER


# ---- authorizations


def _read_authorization(message: inbound_pb2.Authz) -> Reading[Authorization]:
    if not message.networks:
        raise InvalidMessageError("authorization: missing networks")
    if message.HasField("metadata"):
        meta = meta_of(message, "authorization", False)
    else:
        meta = _meta_of_labels(message.labels, "serverauthorization")
    networks: list[NetworkMatch] = []
    for number, one in enumerate(message.networks):
        networks.append((yield from _read_network_match(one)))
        if number % _NETWORKS_PER_PART == _NETWORKS_PER_PART - 1:
            yield 1
    return Authorization(meta, tuple(networks), (yield from _read_authentication(message)))


def _read_network_match(message: inbound_pb2.Network) -> Reading[NetworkMatch]:
    if not message.HasField("net"):
        raise InvalidMessageError("authorization: missing net")
    excepted: Sequence[net_pb2.IPNetwork] = getattr(message, "except")
    return NetworkMatch(network_of(message.net), tuple((yield from each_small(excepted, network_of))))


def _read_authentication(message: inbound_pb2.Authz) -> Reading[Authentication]:
    if not message.HasField("authentication"):
        raise InvalidMessageError("authorization: missing authentication")
    if kind_of(message.authentication, "permit", "authentication") == "unauthenticated":
        return Authentication()
    mesh_tls = message.authentication.meshTLS
    if kind_of(mesh_tls, "clients", "meshTLS") == "unauthenticated":
        return Authentication(needs_tls=True)
    return Authentication(
        needs_tls=True,
        any_client=False,
        identities=frozenset((yield from each_small(mesh_tls.identities.identities, _identity_of))),
        suffixes=tuple((yield from each_small(mesh_tls.identities.suffixes, _suffix_of))),
    )


def _identity_of(message: inbound_pb2.Identity) -> str:
    """DNS-like identities are compared in lower case, URIs as they are."""
    name = message.name
    return name if "://" in name else name.lower()


def _suffix_of(message: inbound_pb2.IdentitySuffix) -> str:
    """The suffix that a list of labels stands for; empty for every DNS-like identity."""
    return "".join("." + part for part in message.parts).lower()


def _meta_of_labels(labels: Mapping[str, str], default_kind: str) -> Meta:
    """Metadata in its older form, as labels."""
    if "name" not in labels:
        raise InvalidMessageError("labels: missing name")
    name = labels["name"]
    group = labels.get("group", "policy.linkerd.io")
    if "kind" in labels:
        kind = labels["kind"]
        return bounded(default_meta(name) if not group and kind == "default" else Meta(group, kind, name), default_kind)
    prefix, colon, rest = name.partition(":")
    if not colon:
        return bounded(Meta(group, default_kind, name), default_kind)
    return bounded(default_meta(rest) if prefix == "default" else Meta(group, prefix, rest), default_kind)


# ---- rate limits


def _rate_limit_of(message: inbound_pb2.HttpLocalRateLimit) -> Reading[RateLimit | None]:
    """None if it limits nothing; an override without a limit is dropped."""
    overrides: list[tuple[frozenset[str], int]] = []
    for one in message.overrides:
        identities = yield from each_small(one.clients.identities, _identity_of)
        if one.limit.requestsPerSecond:
            overrides.append((frozenset(identities), one.limit.requestsPerSecond))
        yield 1
    limit = RateLimit(
        meta_of(message, "rate limit", False) if message.HasField("metadata") else None,
        message.total.requestsPerSecond,
        message.identity.requestsPerSecond,
        tuple(overrides),
    )
    return limit if limit.total or limit.per_identity or limit.overrides else None
