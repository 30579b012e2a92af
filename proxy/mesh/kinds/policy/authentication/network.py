"""Networks by CIDR, with exceptions: the clients' addresses, or the destinations, that an object applies to."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from proxy.mesh.manifests.schema import TEXT, ListOf, Record, shown
from proxy.mesh.manifests.value import Value

Cidr = IPv4Network | IPv6Network

NETWORK: Final = Record({"cidr": TEXT, "except": ListOf(TEXT)}, "cidr")


@dataclass(frozen=True, slots=True)
class Network:
    net: Cidr
    excepted: tuple[Cidr, ...] = ()


def network(value: Value) -> Network:
    return Network(_cidr(value.need("cidr")), tuple(map(_cidr, value.items("except"))))


def _cidr(value: Value) -> Cidr:
    """A network, or an address, which stands for itself alone."""
    try:
        return ip_network(value.text(), strict=False)
    except ValueError:
        raise value.error(f"{shown(value.text())} is neither a network such as 10.0.0.0/8 nor an address") from None
