"""Addresses and names on the wire: Addr to and from protobuf, authorities to hosts, ports and services.

IPv4 is one host-order integer, IPv6 two halves, most significant first (docs/linkerd/inbound.md, section 5).
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from proxy.api import meta_pb2, net_pb2
from proxy.core.address.addr import Addr, addr
from proxy.mesh.kinds.services.service import Service
from proxy.mesh.manifests.kind import Key
from proxy.mesh.model import CLUSTER_DOMAIN

Network = IPv4Network | IPv6Network

ANYWHERE: Final[tuple[Network, ...]] = (ip_network("0.0.0.0/0"), ip_network("::/0"))
PRIVATE_NETWORKS: Final = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fd00::/8")
"""The networks that Linkerd uses as the cluster's by default."""

LOOPBACK_NETWORKS: Final = ("127.0.0.0/8", "::1/128")
CLUSTER_NETWORKS: Final[tuple[Network, ...]] = tuple(map(ip_network, (*PRIVATE_NETWORKS, *LOOPBACK_NETWORKS)))

_HALF: Final = (1 << 64) - 1
_DEFAULT_PORT: Final = 80


def ip_message(ip: IPv4Address | IPv6Address) -> net_pb2.IPAddress:
    number = int(ip)
    if isinstance(ip, IPv4Address):
        return net_pb2.IPAddress(ipv4=number)
    return net_pb2.IPAddress(ipv6=net_pb2.IPv6(first=number >> 64, last=number & _HALF))


def address_message(target: Addr) -> net_pb2.TcpAddress:
    return net_pb2.TcpAddress(ip=ip_message(ip_address(target.ip)), port=target.port)


def network_message(network: Network) -> net_pb2.IPNetwork:
    return net_pb2.IPNetwork(ip=ip_message(network.network_address), prefix_len=network.prefixlen)


def read_address(message: net_pb2.TcpAddress) -> Addr:
    """ValueError if the message names no address or no port."""
    kind = message.ip.WhichOneof("ip")
    if kind is None or not 1 <= message.port <= 65535:
        raise ValueError("an address and a port between 1 and 65535 are needed")
    v6 = message.ip.ipv6
    ip = IPv4Address(message.ip.ipv4) if kind == "ipv4" else IPv6Address(v6.first << 64 | v6.last)
    return addr(str(ip), message.port)


def is_in(ip: str, networks: Iterable[Network]) -> bool:
    parsed = ip_address(ip)
    return any(parsed in network for network in networks)


def read_authority(text: str) -> tuple[str, int]:
    """Host (IPv6 without brackets, names in lower case without a final dot) and port, 80 if absent; ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or (host.count(":") and not host.startswith("[")):
        host, port = text, str(_DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError(f"{text!r} has no port between 1 and 65535")
    host = host.removeprefix("[").removesuffix("]").removesuffix(".").lower()
    if not host:
        raise ValueError(f"{text!r} has no host")
    return host, int(port)


def read_ip(host: str) -> str | None:
    """The canonical text of an IP address, None if it is a name."""
    try:
        return addr(host, 0).ip
    except ValueError:
        return None


def service_key(host: str) -> Key | None:
    """Namespace and name in `name.namespace.svc.cluster.local`; None for any other host."""
    labels = host.removesuffix(f".svc.{CLUSTER_DOMAIN}").split(".")
    if not host.endswith(f".svc.{CLUSTER_DOMAIN}") or len(labels) != 2 or not all(labels):
        return None
    return labels[1], labels[0]


def service_meta(service: Service, port: int) -> meta_pb2.Metadata:
    """A service's port as the resource that policies and profiles belong to."""
    return meta_pb2.Metadata(
        resource=meta_pb2.Resource(
            group="core", kind="Service", name=service.name, namespace=service.namespace, port=port
        )
    )
