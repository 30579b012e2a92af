"""DestinationProfile → Profile (docs/linkerd/service-profiles.md, section 1).

What is wrong in a profile is left out, never the whole: a profile only adds to a policy.
"""

from __future__ import annotations

from proxy.api import destination_pb2
from proxy.control.convert.endpoint import endpoint_of
from proxy.control.convert.fields import InvalidMessageError
from proxy.core.addr import Addr, port_number
from proxy.core.names import dns_name
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.profile import Profile


def profile_of(message: destination_pb2.DestinationProfile, path: str) -> Profile:
    """`path` is what was asked for; the profile's name takes its port from it."""
    port = path.rpartition(":")[2]
    return Profile(
        name=_name_of(message.fully_qualified_name, port),
        is_opaque=message.opaque_protocol,
        endpoint=_endpoint_of(message),
        overrides=tuple(
            (one.authority, one.weight) for one in message.dst_overrides if one.weight and _is_name(one.authority)
        ),
        has_routes=any(_has_condition(route) for route in message.routes),
    )


def _name_of(name: str, port: str) -> str:
    try:
        return f"{dns_name(name)}:{port}"
    except ValueError:
        return ""


def _is_name(authority: str) -> bool:
    host, _, port = authority.rpartition(":")
    return bool(host) and bool(port_number(port))


def _endpoint_of(message: destination_pb2.DestinationProfile) -> tuple[Addr, EndpointMeta] | None:
    if not message.HasField("endpoint"):
        return None
    try:
        return endpoint_of(message.endpoint, {})
    except InvalidMessageError:
        return None


def _has_condition(route: destination_pb2.Route) -> bool:
    """A route whose condition is missing or of no known kind is dropped."""
    return route.HasField("condition") and route.condition.WhichOneof("match") is not None
