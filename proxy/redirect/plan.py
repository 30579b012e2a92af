"""What is redirected, to which ports, and what is left alone; plain values that know no firewall.

Ranges are inclusive and written `22` or `1000-2000`, as Linkerd's init container takes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, NamedTuple

MULTIPORT_LIMIT: Final = 15
"""Ports that one `multiport` match of iptables can name; a range counts as two."""


class PortRange(NamedTuple):
    low: int
    high: int

    def spelled(self, between: str) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}{between}{self.high}"


class Plan(NamedTuple):
    inbound_port: int
    """Where the sidecar accepts what comes to the application."""
    outbound_port: int
    """Where the sidecar accepts what the application sends."""
    proxy_uid: int | None = None
    """The sidecar's own connections are recognised by this user and must not be redirected back to it."""
    proxy_gid: int | None = None
    redirected_ports: tuple[int, ...] = ()
    """The inbound ports that are redirected; all of them if there are none here."""
    skipped_inbound: tuple[PortRange, ...] = ()
    skipped_outbound: tuple[PortRange, ...] = ()
    skipped_subnets: tuple[IPv4Network | IPv6Network, ...] = ()
    """Clients in these subnets reach the application directly."""

    def subnets(self, is_ipv6: bool) -> list[IPv4Network | IPv6Network]:
        """Those of one address family: a rule for IPv6 cannot name an IPv4 network."""
        return [subnet for subnet in self.skipped_subnets if (subnet.version == 6) == is_ipv6]


def parse_port(text: str) -> int:
    """0 to 65535; ValueError."""
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > 65535:
        raise ValueError(f'"{text}" is not a valid TCP port')
    return int(text)


def parse_port_range(text: str) -> PortRange:
    """`N` or `LOW-HIGH`; ValueError, which says which half of it is wrong."""
    bounds = text.split("-")
    if len(bounds) > 2:
        raise ValueError("ranges expected as <lower>-<upper>")
    ports = []
    for bound, name in zip((bounds[0], bounds[-1]), ("lower", "upper"), strict=True):
        try:
            ports.append(parse_port(bound))
        except ValueError:
            raise ValueError(f'"{bound}" is not a valid {name}-bound') from None
    if ports[1] < ports[0]:
        raise ValueError(f'"{text}": upper-bound must be greater than or equal to lower-bound')
    return PortRange(ports[0], ports[1])


def parse_subnet(text: str) -> IPv4Network | IPv6Network:
    """CIDR with its length; bits beyond the length are cleared. ValueError."""
    text = text.strip()
    if "/" not in text:
        raise ValueError(f"{text} is not a valid CIDR address")
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text} is not a valid CIDR address") from None


def in_groups(ranges: Iterable[PortRange]) -> list[list[PortRange]]:
    """The ranges in their order, in as many groups as `multiport` needs."""
    groups: list[list[PortRange]] = []
    room = 0
    for one in ranges:
        size = 1 if one.low == one.high else 2
        if size > room:
            groups.append([])
            room = MULTIPORT_LIMIT
        groups[-1].append(one)
        room -= size
    return groups
