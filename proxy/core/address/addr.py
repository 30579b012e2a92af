"""Addresses: where bytes go (Addr) and what a destination is called (a name and a port).

Values, compared and hashed as such; printed as `ip:port`, IPv6 in brackets.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import NamedTuple


class Addr(NamedTuple):
    """An IP address in its canonical text (IPv4-mapped IPv6 is unwrapped) and a port."""

    ip: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return ip_address(self.ip).is_loopback

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.ip

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


def addr(ip: str, port: int) -> Addr:
    """An Addr from any spelling of an IP address; ValueError if `ip` is not one or the port is out of range."""
    parsed = ip_address(ip)
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        elif parsed.scope_id is not None and not parsed.is_link_local:
            parsed = IPv6Address(int(parsed))  # without its zone, which matters for link-local addresses only
    if not 0 <= port <= 65535:
        raise ValueError(f"port {port} is out of range")
    return Addr(str(parsed), port)


def port_number(digits: str) -> int | None:
    """A port from text that came from outside; None if it is not a port. Never looks at more digits than a port can have."""
    if len(digits) > 5 or not digits.isascii() or not digits.isdigit():
        return None
    number = int(digits)
    return number if number <= 65535 else None


def parse_addr(text: str) -> Addr:
    """`IPv4:port` or `[IPv6]:port`; ValueError otherwise."""
    host, colon, digits = text.rpartition(":")
    port = port_number(digits)
    if not colon or not digits.isascii() or not digits.isdigit():
        raise ValueError(f"{text!r} is not ip:port")
    if port is None:
        raise ValueError(f"port {digits[:20]} is out of range")
    if host.startswith("[") and host.endswith("]"):
        return addr(host[1:-1], port)
    if ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address needs brackets")
    return addr(host, port)
