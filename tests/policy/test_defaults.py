"""The six default policies, their opaque form, and the policy in place of a message that cannot be converted."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from proxy.policy.authz import Client, find_authorization, find_tcp_authorization
from proxy.policy.defaults import NAMES, default_policy, invalid_policy, opaque_form
from proxy.policy.meta import default_meta
from proxy.policy.routes.route import Unusable
from proxy.policy.server import DETECT, OPAQUE

CLUSTER = (ip_network("10.0.0.0/8"),)
INSIDE = Client("10.1.2.3", False, "")
INSIDE_MESHED = Client("10.1.2.3", True, "web.ns.serviceaccount.identity.linkerd.cluster.local")
OUTSIDE = Client("192.0.2.1", False, "")
OUTSIDE_MESHED = Client("2001:db8::1", True, "web.ns.serviceaccount.identity.linkerd.cluster.local")
URI_MESHED = Client("10.1.2.3", True, "spiffe://a/b")
EVERYONE = (INSIDE, INSIDE_MESHED, OUTSIDE, OUTSIDE_MESHED, URI_MESHED)


@pytest.mark.parametrize(("name", "admitted"), [
    ("all-unauthenticated", EVERYONE),
    ("all-authenticated", (INSIDE_MESHED, OUTSIDE_MESHED)),
    ("cluster-unauthenticated", (INSIDE, INSIDE_MESHED, URI_MESHED)),
    ("cluster-authenticated", (INSIDE_MESHED,)),
    ("audit", EVERYONE),
])  # fmt: skip
def test_who_is_admitted(name: str, admitted: tuple[Client, ...]) -> None:
    policy = default_policy(name, CLUSTER, 10.0)
    assert policy.protocol == DETECT
    assert policy.meta == default_meta(name)
    (route,) = policy.routes
    assert route.meta == default_meta("default")
    for client in EVERYONE:
        for found in (find_tcp_authorization(policy, client), find_authorization(route.authorizations, client)):
            assert (found is not None) is (client in admitted)
            assert found is None or found.meta == default_meta(name)


def test_deny_is_opaque_and_admits_nobody() -> None:
    policy = default_policy("deny", (), 10.0)
    assert policy.protocol == OPAQUE and not policy.routes
    assert all(find_tcp_authorization(policy, client) is None for client in EVERYONE)


@pytest.mark.parametrize("name", NAMES)
def test_the_opaque_form_keeps_the_authorization(name: str) -> None:
    policy = default_policy(name, CLUSTER, 10.0)
    opaque = opaque_form(policy)
    assert opaque.protocol == OPAQUE and not opaque.routes
    assert opaque.authorizations == policy.authorizations and opaque.meta == policy.meta


@pytest.mark.parametrize("name", ["cluster-unauthenticated", "cluster-authenticated", "audit"])
def test_cluster_policies_need_the_cluster(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        default_policy(name, (), 10.0)


def test_a_name_that_is_none() -> None:
    with pytest.raises(ValueError, match="'all' is no default policy; one of all-unauthenticated"):
        default_policy("all", CLUSTER, 10.0)


def test_the_invalid_policy_refuses_tcp_and_http() -> None:
    policy = invalid_policy(10.0)
    assert policy.protocol == DETECT
    assert find_tcp_authorization(policy, INSIDE_MESHED) is None
    assert find_authorization(policy.routes[0].authorizations, INSIDE_MESHED) is None
    (rule,) = policy.routes[0].rules
    assert rule.filters == (Unusable("invalid server policy configuration"),), (
        "who is admitted by a fault gets no further"
    )
