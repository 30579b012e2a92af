"""inbound.Server to ServerPolicy: the recorded policies as a whole, then each rule of the interface."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from proxy.api import inbound_pb2
from proxy.control.convert.fields import InvalidMessageError, ip_message
from proxy.control.convert.server import server_policy_of
from proxy.policy import server
from proxy.policy.meta import Meta, default_meta
from proxy.policy.routes.route import (
    FailureInjector,
    GrpcMatch,
    HeaderModifier,
    HostMatch,
    HttpMatch,
    PathMatch,
    Redirect,
    Unusable,
)
from proxy.policy.server import (
    Authentication,
    Authorization,
    NetworkMatch,
    RateLimit,
    ServerPolicy,
    ServerRoute,
    ServerRule,
)
from tests.control.recording import answered, first

Message = dict[str, Any]

ALL = (NetworkMatch(IPv4Network("0.0.0.0/0")), NetworkMatch(IPv6Network("::/0")))
LOCALHOST = Authorization(
    default_meta("localhost"),
    (NetworkMatch(IPv4Network("127.0.0.1/32")), NetworkMatch(IPv6Network("::1/128"))),
    Authentication(),
)
NETWORKS: list[Message] = [{"net": {"ip": {"ipv4": 0x0A000000}, "prefix_len": 8}}]
ANYONE: Message = {"unauthenticated": {}}


def convert(protocol: Message, **fields: Any) -> ServerPolicy:
    whole = {"protocol": protocol, "labels": {"name": "web"}, **fields}
    return server_policy_of(ParseDict(whole, inbound_pb2.Server()))


def authz(**fields: Any) -> Message:
    return {"networks": NETWORKS, "authentication": ANYONE, "metadata": {"default": "x"}, **fields}


def authorization(**fields: Any) -> Authorization:
    return convert({"opaque": {}}, authorizations=[authz(**fields)]).authorizations[0]


# ---- as Linkerd's policy controller sends them


@pytest.mark.parametrize("question", answered("inbound.WatchPort"))
def test_every_recorded_policy_converts(question: str) -> None:
    message = first("inbound.WatchPort", question, inbound_pb2.Server())
    converted = server_policy_of(message)
    assert converted.protocol == message.protocol.WhichOneof("kind")
    assert all(route.authorizations[-1] == LOCALHOST for route in converted.routes)


def test_the_recorded_policy_with_routes_and_limits() -> None:
    converted = server_policy_of(first("inbound.WatchPort", "emojivoto/web-0:8080", inbound_pb2.Server()))
    from_mesh = Authorization(
        Meta("policy.linkerd.io", "authorizationpolicy", "web-api-from-mesh"),
        ALL,
        Authentication(True, False, frozenset(), (".emojivoto.serviceaccount.identity.linkerd.cluster.local",)),
    )
    rules = (
        ServerRule((HttpMatch(PathMatch(prefix="/api"), method="GET"),)),
        ServerRule((HttpMatch(PathMatch(exact="/api/vote")),), (HeaderModifier(set=(("x-route", b"vote"),)),)),
    )
    assert converted.meta == Meta("policy.linkerd.io", "server", "web-http")
    assert converted.protocol == server.HTTP_1
    assert converted.authorizations == ()
    route = ServerRoute(Meta("policy.linkerd.io", "HTTPRoute", "web-api"), (), (from_mesh, LOCALHOST), rules)
    assert converted.routes[0] == route
    assert converted.rate_limit == RateLimit(
        Meta("policy.linkerd.io", "HTTPLocalRateLimitPolicy", "web-rate"),
        100,
        20,
        ((frozenset({"voting.emojivoto.serviceaccount.identity.linkerd.cluster.local"}), 50),),
    )


def test_the_recorded_grpc_policy() -> None:
    converted = server_policy_of(first("inbound.WatchPort", "emojivoto/emoji-0:8080", inbound_pb2.Server()))
    from_web = Authorization(
        Meta("policy.linkerd.io", "authorizationpolicy", "emoji-from-web"),
        ALL,
        Authentication(True, False, frozenset({"web.emojivoto.serviceaccount.identity.linkerd.cluster.local"})),
    )
    rule = ServerRule((GrpcMatch(),))
    assert converted.protocol == server.GRPC
    assert converted.routes == (ServerRoute(default_meta("default"), (), (from_web, LOCALHOST), (rule,), True),)


def test_the_recorded_default_policies() -> None:
    opaque = server_policy_of(first("inbound.WatchPort", "emojivoto/redis-0:6379", inbound_pb2.Server()))
    authenticated = Authorization(
        default_meta("all-authenticated"), ALL, Authentication(True, False, frozenset(), ("",))
    )
    assert opaque == ServerPolicy(default_meta("all-authenticated"), server.OPAQUE, (authenticated, LOCALHOST))
    detect = server_policy_of(first("inbound.WatchPort", "bench/bench-0:8080", inbound_pb2.Server()))
    anyone = Authorization(default_meta("all-unauthenticated"), ALL, Authentication())
    assert (detect.protocol, detect.detect_timeout_s) == (server.DETECT, 10.0)
    assert detect.authorizations == (anyone, LOCALHOST)
    assert [route.authorizations for route in detect.routes] == [(anyone, LOCALHOST)]


# ---- protocols


def test_protocols() -> None:
    for kind in ("opaque", "tls"):
        converted = convert({kind: {}}, authorizations=[authz()])
        assert (converted.protocol, len(converted.authorizations), converted.routes) == (kind, 2, ())
    for kind in ("http1", "http2", "grpc"):
        converted = convert({kind: {}}, authorizations=[authz()])
        assert (converted.protocol, converted.authorizations) == (kind, ())
        [route] = converted.routes
        assert (route.meta, route.hosts, route.rules) == (default_meta("default"), (), (ServerRule(()),))
        assert [one.meta.name for one in route.authorizations] == ["x", "localhost"]
        assert route.is_grpc == (kind == "grpc")


@pytest.mark.parametrize("kind", ["detect", "http1", "http2", "grpc", "opaque", "tls"])
def test_on_a_mesh_that_is_on_loopback_localhost_is_let_in_by_policy_only(kind: str) -> None:
    """On a mesh on loopback all clients come from loopback, so the usual exemption of localhost would let everyone in,
    whatever the policies are. There localhost is let in by policy only.
    """
    protocol = {kind: {"timeout": "1s"} if kind == "detect" else {}}
    whole = {"protocol": protocol, "labels": {"name": "web"}, "authorizations": [authz()]}
    policy = server_policy_of(ParseDict(whole, inbound_pb2.Server()), lets_localhost_in=False)
    listed = [policy.authorizations, *(route.authorizations for route in policy.routes)]
    assert {one.meta.name for authorizations in listed for one in authorizations} == {"x"}


def test_a_route_has_its_own_authorizations_first() -> None:
    route = {"metadata": {"default": "r"}, "authorizations": [authz(metadata={"default": "own"})]}
    converted = convert({"http2": {"routes": [route]}}, authorizations=[authz()])
    assert [one.meta.name for one in converted.routes[0].authorizations] == ["own", "x", "localhost"]


def test_routes_of_a_detected_port_and_filters() -> None:
    route = {
        "metadata": {"resource": {"group": "g", "kind": "HTTPRoute", "name": "r"}},
        "hosts": [{"exact": "Web.example"}],
        "rules": [
            {
                "filters": [
                    {"redirect": {"host": "x.example"}},
                    {"failure_injector": {"status": 500, "message": "no"}},
                    {},
                ]
            }
        ],
    }
    converted = convert({"detect": {"timeout": "1.5s", "http_routes": [route]}})
    assert converted.detect_timeout_s == 1.5
    assert converted.routes[0].hosts == (HostMatch("web.example"),)
    unknown = Unusable("invalid server policy: server policy configured with unknown filter")
    assert converted.routes[0].rules[0].filters == (Redirect(host="x.example"), FailureInjector(500, "no"), unknown)


def test_filters_of_a_grpc_route() -> None:
    filters = [{"failure_injector": {"code": 8, "message": "full"}}, {"request_header_modifier": {"remove": ["a"]}}, {}]
    route = {"metadata": {"default": "r"}, "rules": [{"filters": filters}]}
    converted = convert({"grpc": {"routes": [route]}}).routes[0].rules[0].filters
    assert converted[:2] == (FailureInjector(8, "full", True), HeaderModifier(remove=("a",)))
    assert isinstance(converted[2], Unusable)


# ---- authorizations


@pytest.mark.parametrize(
    ("authentication", "converted"),
    [
        ({"unauthenticated": {}}, Authentication()),
        ({"meshTLS": {"unauthenticated": {}}}, Authentication(needs_tls=True)),
        ({"meshTLS": {"identities": {}}}, Authentication(True, False)),
        (
            {"meshTLS": {"identities": {"identities": [{"name": "A.ns"}, {"name": "spiffe://Td/A"}]}}},
            Authentication(True, False, frozenset({"a.ns", "spiffe://Td/A"})),
        ),
        (
            {"meshTLS": {"identities": {"suffixes": [{}, {"parts": ["ns", "Local"]}]}}},
            Authentication(True, False, frozenset(), ("", ".ns.local")),
        ),
    ],
)
def test_authentications(authentication: Message, converted: Authentication) -> None:
    assert authorization(authentication=authentication).authentication == converted


def test_networks() -> None:
    message = {
        "net": {"ip": {"ipv4": 0x0A000001}, "prefix_len": 8},
        "except": [{"ip": {"ipv4": 0x0A010000}, "prefix_len": 16}],
    }
    six = {"net": {"ip": {"ipv6": {"first": 0xFD00 << 48, "last": 1}}, "prefix_len": 128}}
    assert authorization(networks=[message, six]).networks == (
        NetworkMatch(IPv4Network("10.0.0.0/8"), (IPv4Network("10.1.0.0/16"),)),
        NetworkMatch(IPv6Network("fd00::1/128")),
    )


@pytest.mark.parametrize(
    ("labels", "meta"),
    [
        ({"name": "a"}, Meta("policy.linkerd.io", "server", "a")),
        ({"name": "a", "group": "g", "kind": "k"}, Meta("g", "k", "a")),
        ({"name": "a", "group": "", "kind": "default"}, default_meta("a")),
        ({"name": "default:deny"}, default_meta("deny")),
        ({"name": "thing:a"}, Meta("policy.linkerd.io", "thing", "a")),
    ],
)
def test_meta_from_labels(labels: dict[str, str], meta: Meta) -> None:
    assert convert({"opaque": {}}, labels=labels).meta == meta


def test_an_authorization_without_metadata_is_named_by_its_labels() -> None:
    message = authz(labels={"name": "a"})
    del message["metadata"]
    [converted, _] = convert({"opaque": {}}, authorizations=[message]).authorizations
    assert converted.meta == Meta("policy.linkerd.io", "serverauthorization", "a")


# ---- rate limits


def test_rate_limits() -> None:
    limit: Message = {
        "total": {"requestsPerSecond": 10},
        "overrides": [
            {"limit": {"requestsPerSecond": 5}, "clients": {"identities": [{"name": "A.ns"}, {"name": "b.ns"}]}},
            {"clients": {"identities": [{"name": "c.ns"}]}},
        ],
    }
    expected = RateLimit(None, 10, 0, ((frozenset({"a.ns", "b.ns"}), 5),))
    assert convert({"detect": {"timeout": "1s", "http_local_rate_limit": limit}}).rate_limit == expected
    assert convert({"http1": {"local_rate_limit": limit}}).rate_limit == expected
    assert convert({"http2": {"local_rate_limit": limit}}).rate_limit == expected
    assert convert({"http2": {"local_rate_limit": {}}}).rate_limit is None
    assert convert({"grpc": {}}).rate_limit is None


@pytest.mark.acceptance("AUTHZ-17")
def test_every_limit_of_a_message_is_converted() -> None:
    def override(limit: int, *names: str) -> Message:
        clients: Message = {"identities": [{"name": name} for name in names]}
        return {"limit": {"requestsPerSecond": limit}, "clients": clients}

    limit: Message = {
        "total": {"requestsPerSecond": 100},
        "identity": {"requestsPerSecond": 20},
        "overrides": [override(50, "c1", "c2"), override(75, "c3", "c4")],
    }
    expected = RateLimit(None, 100, 20, ((frozenset({"c1", "c2"}), 50), (frozenset({"c3", "c4"}), 75)))
    assert convert({"http1": {"local_rate_limit": limit}}).rate_limit == expected


# ---- metadata


@pytest.mark.acceptance("AUTHZ-19")
def test_metadata_from_labels() -> None:
    def meta(**labels: str) -> Meta:
        return convert({"opaque": {}}, labels=labels).meta

    default = default_meta("foo")
    assert meta(group="", kind="default", name="foo") == meta(name="default:foo") == default
    assert default == Meta("", "default", "foo", "ns", "section", 80), "what says where it is does not tell two apart"
    assert default not in (default_meta("bar"), Meta("policy.linkerd.io", "default", "foo"), Meta("", "server", "foo"))
    assert meta(name="foo") == Meta("policy.linkerd.io", "server", "foo")


# ---- rules, each broken once


def of_authz(**fields: Any) -> Callable[[], ServerPolicy]:
    return lambda: convert({"opaque": {}}, authorizations=[authz(**fields)])


def without_authentication() -> ServerPolicy:
    message = authz()
    del message["authentication"]
    return convert({"opaque": {}}, authorizations=[message])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: server_policy_of(inbound_pb2.Server()), "server: missing protocol"),
        (lambda: convert({}), "protocol: missing kind"),
        (lambda: convert({"detect": {}}), "detect: missing timeout"),
        (lambda: convert({"opaque": {}}, labels={}), "labels: missing name"),
        (lambda: convert({"http1": {"routes": [{}]}}), "HTTP route: missing metadata"),
        (lambda: convert({"grpc": {"routes": [{}]}}), "gRPC route: missing metadata"),
        (of_authz(networks=[]), "authorization: missing networks"),
        (of_authz(networks=[{}]), "authorization: missing net"),
        (of_authz(networks=[{"net": {}}]), "network: missing ip"),
        (of_authz(networks=[{"net": {"ip": {}}}]), "IP address: missing ip"),
        (of_authz(networks=[{"net": {"ip": {"ipv4": 1}, "prefix_len": 33}}]), "network: prefix length 33"),
        (without_authentication, "authorization: missing authentication"),
        (of_authz(authentication={}), "authentication: missing permit"),
        (of_authz(authentication={"meshTLS": {}}), "meshTLS: missing clients"),
        (of_authz(metadata={}), "authorization metadata: missing kind"),
    ],
)
def test_a_broken_rule_makes_the_whole_message_invalid(make: Callable[[], ServerPolicy], text: str) -> None:
    with pytest.raises(InvalidMessageError) as raised:
        make()
    assert text in str(raised.value)


def test_addresses_go_both_ways() -> None:
    assert ip_message("10.0.0.1").ipv4 == 0x0A000001
    six = ip_message("2001:db8::1").ipv6
    assert (six.first, six.last) == (0x20010DB8_00000000, 1)
