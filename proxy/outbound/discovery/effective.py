"""Finds the effective policy of a destination from its profile and policy: by the sidecar's rule, ingress's, or the gateway's.

Pure functions of a target, its profile and its policy. They return None while an answer is missing that could change the
result, and Absent if connections to the target go nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.address.addr import Addr
from proxy.core.watch import Absent
from proxy.policy.client import (
    DETECT,
    EMPTY,
    FIRST_AVAILABLE,
    Backend,
    Balance,
    ClientPolicy,
    ClientRoute,
    ClientRule,
    Distribution,
    RouteBackend,
    StreamRoute,
    forward_policy,
    invalid_policy,
)
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta, default_meta
from proxy.policy.profiles.profile import Profile

Target = Addr | str
"""An original destination, or a `name:port` that was asked for by name."""

Known = ClientPolicy | Absent | None
KnownProfile = Profile | Absent | None
Effective = Callable[[Target, KnownProfile, Known], Known]


def effective_policy(target: Target, profile: KnownProfile, policy: Known) -> Known:
    """The policy for a sidecar (docs/linkerd/outbound.md, section 3.1)."""
    if policy is None:
        return None
    if isinstance(policy, Absent) and (policy.is_refusal or (isinstance(target, str) and not _is_instance(target))):
        return policy  # whatever the profile says, because a service's name has no address of its own to go to
    if profile is None:
        return None
    if not isinstance(policy, Absent):
        return policy
    if isinstance(target, str):
        endpoint = profile.endpoint if isinstance(profile, Profile) else None
        return policy if endpoint is None else forward_policy(default_meta("endpoint"), *endpoint)
    if isinstance(profile, Profile):
        addr, meta = profile.endpoint or (target, EndpointMeta())
        return forward_policy(default_meta("endpoint"), addr, meta)
    return forward_policy(default_meta("fallback"), target, EndpointMeta())


def ingress_policy(target: Target, profile: KnownProfile, policy: Known) -> Known:
    """The policy for a request in ingress mode (docs/linkerd/outbound.md, section 11). Requests to an unknown address
    are forwarded there, as a sidecar would do.
    """
    if policy is None or (isinstance(policy, Absent) and policy.is_refusal):
        return policy
    if profile is None:
        return None
    if not isinstance(policy, Absent):
        return policy
    if not isinstance(profile, Profile):
        return policy if isinstance(target, str) else forward_policy(default_meta("fallback"), target, EndpointMeta())
    if profile.endpoint is not None:
        return forward_policy(default_meta("endpoint"), *profile.endpoint)
    if profile.name:
        return balance_policy(profile.name, "profile")
    return ClientPolicy(default_meta("empty"), DETECT, *(_routes(default_meta("empty"), Distribution(EMPTY)),) * 2)


def gateway_policy(target: Target, profile: KnownProfile, policy: Known) -> Known:
    """The policy for traffic through a gateway (docs/linkerd/outbound.md, section 12): requests go by the profile,
    bytes by the policy. The gateway does not serve names without a profile.
    """
    if policy is None or (isinstance(policy, Absent) and policy.is_refusal):
        return policy
    if not isinstance(profile, Profile):
        return profile
    endpoint = profile.endpoint
    if isinstance(policy, Absent):
        meta = default_meta("gateway")
        policy = forward_policy(meta, *endpoint) if endpoint is not None else invalid_policy()
    if profile.name:
        routes = balance_policy(profile.name, "profile").http1_routes
    elif endpoint is not None:
        routes = forward_policy(default_meta("endpoint"), *endpoint).http1_routes
    else:
        return Absent("its profile names neither a service nor an endpoint")
    streams = policy.opaque_routes or policy.tls_routes or _as_streams(policy)
    return ClientPolicy(
        policy.meta,
        DETECT,
        routes,
        routes,
        streams,
        http1_accrual=policy.http1_accrual,
        http2_accrual=policy.http2_accrual,
    )


def balance_policy(path: str, name: str) -> ClientPolicy:
    """A balancer over the endpoints of `path` (`name:port`) from the destination service or the resolver; `name` is the policy's."""
    meta = default_meta(name)
    distribution = Distribution(FIRST_AVAILABLE, (RouteBackend(Backend(UNKNOWN, Balance(path))),))
    routes = _routes(meta, distribution)
    return ClientPolicy(meta, DETECT, routes, routes, (StreamRoute(meta, distribution),))


UNKNOWN: Final = Meta("", "default", "unknown")


def _routes(meta: Meta, distribution: Distribution) -> tuple[ClientRoute, ...]:
    return (ClientRoute(meta, (), (ClientRule((), (), distribution),)),)


def _as_streams(policy: ClientPolicy) -> tuple[StreamRoute, ...]:
    """A policy that knows HTTP only: the backends of its first rule."""
    for route in policy.http1_routes or policy.http2_routes:
        for rule in route.rules:
            return (StreamRoute(route.meta, rule.distribution),)
    return ()


def _is_instance(target: str) -> bool:
    """Whether it names a single endpoint of a service (`web-0.web.ns.svc.…`), such as a pod of a StatefulSet, which
    only a profile has.
    """
    before, mark, _ = target.partition(".svc.")
    return bool(mark) and before.count(".") == 2
