"""What messages share: durations, addresses, networks, metadata, backoffs.

Every function returns the model's value or raises InvalidMessageError, whose
text names the field; what to do about it is the caller's.
Source: docs/linkerd/outbound.md, section 6; docs/linkerd/inbound.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from proxy.api import meta_pb2, net_pb2, outbound_pb2
from proxy.core import limits
from proxy.core.address.addr import Addr, addr
from proxy.core.backoff import Backoff
from proxy.policy.meta import Meta, default_meta

_MAX_JITTER = 100.0


class InvalidMessageError(ValueError):
    """A message breaks a rule of the wire interface."""


def kind_of(message: Message, oneof: str, what: str) -> str:
    """The name of the oneof's field that is set."""
    kind = message.WhichOneof(oneof)
    if kind is None:
        raise InvalidMessageError(f"{what}: missing {oneof}")
    return str(kind)


def duration_s(message: Message, field: str) -> float | None:
    """A Duration field in seconds, None if unset."""
    if not message.HasField(field):
        return None
    duration: Duration = getattr(message, field)
    seconds = duration.seconds + duration.nanos / 1e9
    if seconds < 0 or duration.seconds < 0 or abs(duration.nanos) >= 1_000_000_000:
        raise InvalidMessageError(f"{field}: {duration.seconds}s {duration.nanos}ns is no duration")
    return seconds


def required_s(message: Message, field: str, what: str) -> float:
    seconds = duration_s(message, field)
    if seconds is None:
        raise InvalidMessageError(f"{what}: missing {field}")
    return seconds


def ip_of(message: net_pb2.IPAddress) -> IPv4Address | IPv6Address:
    kind = kind_of(message, "ip", "IP address")
    if kind == "ipv4":
        return IPv4Address(message.ipv4)
    return IPv6Address(message.ipv6.first << 64 | message.ipv6.last)


def ip_message(ip: str) -> net_pb2.IPAddress:
    """An IP address as a message, for requests."""
    address = ip_address(ip)
    if isinstance(address, IPv4Address):
        return net_pb2.IPAddress(ipv4=int(address))
    halves = divmod(int(address), 1 << 64)
    return net_pb2.IPAddress(ipv6=net_pb2.IPv6(first=halves[0], last=halves[1]))


def addr_of(message: net_pb2.TcpAddress) -> Addr:
    if not message.HasField("ip"):
        raise InvalidMessageError("address: missing ip")
    try:
        return addr(str(ip_of(message.ip)), message.port)
    except ValueError as error:
        raise InvalidMessageError(f"address: {error}") from None


def network_of(message: net_pb2.IPNetwork) -> IPv4Network | IPv6Network:
    if not message.HasField("ip"):
        raise InvalidMessageError("network: missing ip")
    ip = ip_of(message.ip)
    if message.prefix_len > ip.max_prefixlen:
        raise InvalidMessageError(f"network: prefix length {message.prefix_len} of {ip}")
    if isinstance(ip, IPv4Address):
        return IPv4Network((ip, message.prefix_len), strict=False)
    return IPv6Network((ip, message.prefix_len), strict=False)


def meta_of(owner: Message, what: str, is_strict: bool) -> Meta:
    """The `metadata` of a policy, route or backend. Strict (outbound): no name of a resource may be empty."""
    if not owner.HasField("metadata"):
        raise InvalidMessageError(f"{what}: missing metadata")
    message: meta_pb2.Metadata = owner.metadata  # type: ignore[attr-defined]
    if kind_of(message, "kind", f"{what} metadata") == "default":
        return bounded(default_meta(message.default), what)
    resource = message.resource
    if is_strict:
        for name in ("group", "kind", "name", "namespace"):
            if not getattr(resource, name):
                raise InvalidMessageError(f"{what} metadata: {name} must not be empty")
    port = resource.port if resource.port <= 65535 else 0
    return bounded(Meta(resource.group, resource.kind, resource.name, resource.namespace, resource.section, port), what)


def bounded(meta: Meta, what: str) -> Meta:
    """The metadata, whose names are labels of every series of what it names (Kubernetes: 253 characters each)."""
    size = len(meta.group) + len(meta.kind) + len(meta.name) + len(meta.namespace) + len(meta.section)
    if size > limits.REMEMBERED_TEXT_BYTES:
        raise InvalidMessageError(f"{what} metadata: {size} characters, where {limits.REMEMBERED_TEXT_BYTES} may be")
    return meta


def labels_of(*given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Labels for metrics, sorted; later ones count before earlier ones of the same name. What is too long, and what is too
    much, is left out: each label is part of every series of an endpoint or route.
    """
    found: dict[str, str] = {}
    for labels in given:
        for name, value in labels.items():
            if len(name) <= limits.LABEL_BYTES and len(value) <= limits.REMEMBERED_TEXT_BYTES:
                found[name] = value
    return tuple(sorted(found.items())[: limits.MESSAGE_LABELS])


def backoff_of(message: outbound_pb2.ExponentialBackoff) -> Backoff:
    """`respect_retry_after_hint` is ignored, as Linkerd does."""
    min_s = required_s(message, "min_backoff", "backoff")
    max_s = required_s(message, "max_backoff", "backoff")
    jitter = message.jitter_ratio
    if min_s > max_s:
        raise InvalidMessageError(f"backoff: minimum {min_s:g}s exceeds maximum {max_s:g}s")
    if max_s == 0:
        raise InvalidMessageError("backoff: maximum must not be zero")
    if not math.isfinite(jitter) or not 0 <= jitter <= _MAX_JITTER:
        raise InvalidMessageError(f"backoff: jitter {jitter:g} is not within 0 and 100")
    return Backoff(min_s, max_s, jitter)
