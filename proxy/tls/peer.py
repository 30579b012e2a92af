"""Who the other side of a TLS connection is."""

from __future__ import annotations

import ssl
from typing import NamedTuple


class TlsPeer(NamedTuple):
    client_id: str
    """The first usable SAN of the peer's certificate; empty without one."""
    alpn: str
    """The protocol that was negotiated; empty for none."""


class TlsTarget(NamedTuple):
    context: ssl.SSLContext
    server_name: str
    """Sent as SNI."""
    server_id: str
    """One of the SANs of the server's certificate must equal it."""
