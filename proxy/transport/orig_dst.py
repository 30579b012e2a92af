"""The original destination of a redirected connection (docs/linkerd/inbound.md, section 1).

Only the kernel is asked. A socket that was not redirected has no original
destination, or its own address, and the caller decides what that means.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, Protocol

from proxy.core.address.addr import Addr, addr

_SO_ORIGINAL_DST: Final = 80
"""linux/netfilter_ipv4.h; IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv6/ip6_tables.h has the same number."""
_SOCKADDR_IN_BYTES: Final = 16
_SOCKADDR_IN6_BYTES: Final = 28


class HasOptions(Protocol):
    """The one method of a socket that is used, so that a test can pass a fake."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def original_dst(sock: HasOptions, peer: Addr) -> Addr:
    """Where the client of this accepted socket meant to go. OSError if the kernel knows of no redirection.

    The table is that of the peer's address family, also on a dual-stack socket, where `peer` is unwrapped already.
    """
    if peer.is_ipv6:
        return _read(socket.AF_INET6, sock.getsockopt(socket.IPPROTO_IPV6, _SO_ORIGINAL_DST, _SOCKADDR_IN6_BYTES))
    return _read(socket.AF_INET, sock.getsockopt(socket.IPPROTO_IP, _SO_ORIGINAL_DST, _SOCKADDR_IN_BYTES))


def _read(family: socket.AddressFamily, sockaddr: bytes) -> Addr:
    """sockaddr_in: family, port, address; sockaddr_in6 has its flow information before the address."""
    at, size = (8, 16) if family is socket.AF_INET6 else (4, 4)
    if len(sockaddr) < at + size:
        raise OSError(f"the kernel's original destination has only {len(sockaddr)} bytes")
    port = struct.unpack_from("!H", sockaddr, 2)[0]
    return addr(socket.inet_ntop(family, sockaddr[at : at + size]), port)
