"""How the traffic that a ServiceProfile routes is split over services, for HTTP and for opaque connections
(docs/linkerd/service-profiles.md, section 6).
"""

from __future__ import annotations

from typing import Final

from proxy.core.address.addr import port_number
from proxy.policy.client import FIRST_AVAILABLE, RANDOM_AVAILABLE, Backend, Balance, Distribution, RouteBackend
from proxy.policy.meta import Meta, default_meta
from proxy.policy.profiles.profile import Profile

_UNKNOWN: Final = default_meta("unknown")


def split_of(profile: Profile) -> Distribution:
    """The profile's overrides by weight; without any, everything goes to the service that it describes."""
    if not profile.overrides:
        return Distribution(FIRST_AVAILABLE, (_target(profile.name, 1),))
    return Distribution(RANDOM_AVAILABLE, tuple(_target(*one) for one in profile.overrides))


def _target(authority: str, weight: int) -> RouteBackend:
    return RouteBackend(Backend(service_meta(authority), Balance(authority)), weight)


def service_meta(authority: str) -> Meta:
    """The Service that `name:port` names, as in `web.ns.svc.cluster.local:80`. Other names give empty metadata."""
    host, _, port = authority.rpartition(":")
    labels = host.split(".")
    if len(labels) < 3 or labels[2].lower() != "svc":
        return _UNKNOWN
    return Meta("core", "Service", labels[0], labels[1], port=port_number(port) or 0)
