"""The authority that a request is for, when routing or naming needs one (docs/linkerd/inbound.md, section 9; docs/linkerd/outbound.md, section 5).

Target before Host before the default; nothing of the head changes, so
that what the app sent is what the app gets.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.address.addr import Addr
from proxy.http.head import RequestHead

_split = re.compile(rb"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{0,5}))?").fullmatch

_DEFAULT_PORTS: Final[dict[bytes, int]] = {b"http": 80, b"https": 443}


def authority_of(request: RequestHead, default: bytes) -> bytes:
    """The authority in the target or Host; `default`, which may be empty, if neither has one."""
    return request.authority or default


def authority_of_addr(addr: Addr, omits_port_80: bool = True) -> bytes:
    """The address as an authority: the default for requests that came to it."""
    host = f"[{addr.ip}]" if addr.is_ipv6 else addr.ip
    return (host if omits_port_80 and addr.port == 80 else f"{host}:{addr.port}").encode("ascii")


def split_authority(authority: bytes) -> tuple[bytes, int | None]:
    """Host in lower case, IPv6 without its brackets, and the port if it is written. ValueError if it is not an
    authority.
    """
    match = _split(authority)
    if match is None:
        raise ValueError(f"not an authority: {authority[:100].decode('latin-1')!r}")
    host, digits = match.groups()
    port = int(digits) if digits else None
    if port is not None and not 0 < port <= 65535:
        raise ValueError(f"not a port: {port}")
    return host.strip(b"[]").lower(), port


def port_of(request: RequestHead, authority: bytes) -> int:
    """The port that a request's authority names, or its scheme's default. ValueError if it is not an authority."""
    port = split_authority(authority)[1]
    return port if port is not None else _DEFAULT_PORTS.get(request.scheme, 80)
