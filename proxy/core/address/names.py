"""Names: what a DNS name is, which suffixes and networks hold it (docs/linkerd/configuration.md, section 2).

Values and pure functions; a name is stored in lower case, and `a` and
`a.` are different names, but suffixes match both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from proxy.core.address.addr import port_number

Network = IPv4Network | IPv6Network

_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")


def dns_name(text: str) -> str:
    """The name in lower case, a trailing dot kept; ValueError if it is not a DNS name.

    1 to 253 bytes without the trailing dot, labels of 1 to 63 letters, digits, `_` and `-`, no `-` at the ends of a
    label, a last label that is not all digits, no wildcard.
    """
    name = text.lower() if text.isascii() else ""
    bare = name.removesuffix(".")
    labels = bare.split(".")
    if not 1 <= len(bare) <= 253 or labels[-1].isdigit() or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{text!r} is not a DNS name")
    return name


def name_and_port(text: str) -> str:
    """`name:port` as destinations are looked up: in lower case and without the name's final dot. ValueError if it is
    neither.

    A client may write the final dot, which marks a name as absolute; the destination service knows no names with it.
    """
    host, _, port = text.rpartition(":")
    if not port_number(port):
        raise ValueError(f"{text[:300]!r} is not host:port")
    return f"{dns_name(host).removesuffix('.')}:{port}"


class Suffixes:
    """A list of DNS suffixes; `.` contains every name."""

    __slots__ = ("names",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        """`names` as `dns_name` gives them, or `.`."""
        self.names: Final = tuple(names)

    def contains(self, name: str) -> bool:
        """Whether `name` is one of the suffixes or ends in one; case and trailing dots do not matter."""
        bare = name.lower().removesuffix(".")
        for suffix in self.names:
            end = suffix.removesuffix(".")
            if not end or bare == end or bare.endswith("." + end):
                return True
        return False

    def __bool__(self) -> bool:
        return bool(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Suffixes) and other.names == self.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"Suffixes({','.join(self.names)})"


def parse_suffixes(text: str) -> Suffixes:
    """`,`-separated names or `.`, each trimmed, empty ones ignored; ValueError names the bad one."""
    items = [item.strip() for item in text.split(",")]
    return Suffixes([item if item == "." else dns_name(item) for item in items if item])


def searched(name: str, domains: Suffixes) -> str:
    """The full name that a short name stands for, with search domains such as `default.svc.cluster.local`; empty if it
    is not a short name.

    Short names are `web` and `web.default` for a service of our own namespace, and `web.other.svc` for one of
    another namespace. Of names with two labels only those that end in our own namespace are short, because
    `example.com` is a name of the Internet. A name with a final dot is absolute, so it is never short.
    """
    labels = name.split(".")
    for domain in domains.names:
        namespace, _, rest = domain.removesuffix(".").partition(".")
        service, _, tail = rest.partition(".")
        if service != "svc" or not tail:
            continue
        if len(labels) == 1 and name != "localhost":
            return f"{name}.{namespace}.{rest}"
        if len(labels) == 2 and labels[1] == namespace:
            return f"{name}.{rest}"
        if len(labels) in (3, 4) and labels[-1] == "svc":
            return f"{name}.{tail}"
    return ""


class Networks:
    """A list of CIDR blocks."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: Iterable[Network] = ()) -> None:
        self.blocks: Final = tuple(blocks)

    def contains(self, ip: str) -> bool:
        """`ip` in any spelling; ValueError if it is no IP address. IPv4-mapped IPv6 counts as IPv4."""
        address: IPv4Address | IPv6Address = ip_address(ip)
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in block for block in self.blocks)

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Networks) and other.blocks == self.blocks

    def __hash__(self) -> int:
        return hash(self.blocks)

    def __repr__(self) -> str:
        return f"Networks({','.join(map(str, self.blocks))})"


def parse_network(text: str) -> Network:
    """`address/length`; bits beyond the length are dropped. ValueError for a bare address or anything else."""
    address, slash, length = text.partition("/")
    if not slash or not length.isascii() or not length.isdigit():
        raise ValueError(f"{text!r} is not a network")
    try:
        return ip_network((address, int(length)), strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is not a network") from None
