"""Authorization of clients by networks, TLS, identities and suffixes."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from proxy.policy.authz import Client, find_authorization, find_tcp_authorization
from proxy.policy.meta import Meta, default_meta
from proxy.policy.server import (
    DETECT,
    GRPC,
    HTTP_1,
    HTTP_2,
    OPAQUE,
    TLS,
    Authentication,
    Authorization,
    NetworkMatch,
    ServerPolicy,
)

ANYWHERE = (NetworkMatch(ip_network("0.0.0.0/0")), NetworkMatch(ip_network("::/0")))
SPIFFE = "spiffe://cluster.local/foo"
DNS = "foo.ns.serviceaccount.identity.linkerd.cluster.local"


def allowed(authentication: Authentication, identity: str = "", is_tls: bool = True) -> bool:
    authorization = Authorization(default_meta("x"), ANYWHERE, authentication)
    return find_authorization((authorization,), Client("10.0.0.1", is_tls, identity)) is authorization


def of(*identities: str, suffixes: tuple[str, ...] = ()) -> Authentication:
    return Authentication(needs_tls=True, any_client=False, identities=frozenset(identities), suffixes=suffixes)


def test_networks_and_what_they_except() -> None:
    networks = (
        NetworkMatch(ip_network("192.0.2.0/24"), (ip_network("192.0.2.8/30"),)),
        NetworkMatch(ip_network("fd00::/8")),
    )
    one = Authorization(default_meta("x"), networks, Authentication())

    def find(ip: str) -> Authorization | None:
        return find_authorization((one,), Client(ip, False, ""))

    assert find("192.0.2.7") is one
    assert find("192.0.2.9") is None
    assert find("192.0.3.1") is None
    assert find("fd00::1") is one
    assert find("::1") is None


def test_the_first_that_matches_names_the_labels() -> None:
    mesh = Authorization(Meta("g", "k", "mesh"), ANYWHERE, Authentication(needs_tls=True))
    first = Authorization(Meta("g", "k", "first"), ANYWHERE, Authentication())
    second = Authorization(Meta("g", "k", "second"), ANYWHERE, Authentication())
    assert find_authorization((mesh, first, second), Client("::1", False, "")) is first
    assert find_authorization((mesh, first, second), Client("::1", True, "")) is mesh
    assert find_authorization((), Client("::1", True, DNS)) is None


def test_anyone_needs_no_tls_and_mesh_tls_needs_no_certificate() -> None:
    assert allowed(Authentication(), is_tls=False)
    assert allowed(Authentication(needs_tls=True))
    assert not allowed(Authentication(needs_tls=True), is_tls=False)


@pytest.mark.acceptance("AUTHZ-13")
def test_a_uri_identity_is_in_the_set_or_not() -> None:
    assert allowed(of(SPIFFE), SPIFFE)
    assert not allowed(of("spiffe://cluster.local/bar"), SPIFFE)


@pytest.mark.acceptance("AUTHZ-14")
def test_a_dns_identity_is_in_the_set_or_has_the_suffix() -> None:
    assert allowed(of(DNS), DNS)
    assert not allowed(of("bar" + DNS[3:]), DNS)
    assert allowed(of(suffixes=(".cluster.local",)), DNS)
    assert not allowed(of(suffixes=(".cluster.example.com",)), DNS)
    assert not allowed(of(suffixes=(".cluster.local",)), "cluster.local"), "at least one label stands before a suffix"
    assert allowed(of(suffixes=("",)), DNS)
    assert not allowed(of(suffixes=("",)), "")


@pytest.mark.acceptance("AUTHZ-15")
def test_suffixes_never_apply_to_uri_identities() -> None:
    assert not allowed(of(suffixes=("",)), SPIFFE)
    assert not allowed(of(suffixes=("/foo",)), SPIFFE)
    assert not allowed(of(suffixes=("cluster.local/foo",)), SPIFFE)


@pytest.mark.acceptance("AUTHZ-16")
@pytest.mark.parametrize("identity", [SPIFFE, DNS])
def test_one_of_several_identities_is_enough(identity: str) -> None:
    assert allowed(of("spiffe://a/b", identity, "other.local"), identity)
    assert not allowed(of("spiffe://a/b", "other.local"), identity)


def tcp(authentication: Authentication, networks: str = "192.0.2.0/24") -> ServerPolicy:
    authorization = Authorization(
        Meta("g", "serverauthorization", "unauth"), (NetworkMatch(ip_network(networks)),), authentication
    )
    return ServerPolicy(Meta("g", "server", "test"), DETECT, (authorization,))


def test_tcp_asks_the_same() -> None:
    policy = tcp(of(DNS))
    assert find_tcp_authorization(policy, Client("192.0.2.1", True, DNS)) is policy.authorizations[0]
    assert find_tcp_authorization(policy, Client("192.0.2.1", True, "bar" + DNS[3:])) is None
    assert find_tcp_authorization(policy, Client("192.0.3.1", True, DNS)) is None


@pytest.mark.parametrize(("protocol", "is_allowed"), [
    (DETECT, True), (OPAQUE, True), (TLS, True), (HTTP_1, False), (HTTP_2, False), (GRPC, False),
])  # fmt: skip
def test_a_port_that_speaks_http_takes_no_tcp(protocol: str, is_allowed: bool) -> None:
    policy = ServerPolicy(default_meta("x"), protocol, tcp(Authentication()).authorizations)
    assert (find_tcp_authorization(policy, Client("192.0.2.1", False, "")) is not None) is is_allowed
