"""EndpointMeta: everything that discovery reports about one address besides the address.

A value. A balancer keeps an endpoint (its connections, load and breaker) exactly while this stays equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HINT_NONE: Final = ""
HINT_H2: Final = "h2"
"""The peer is a proxy that takes HTTP/1 inside HTTP/2 (`l5d-orig-proto`)."""
HINT_OPAQUE: Final = "opaque"


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    server_id: str
    """The identity that the peer's certificate must carry (DNS name or URI)."""
    server_name: str
    """The SNI to send."""


@dataclass(frozen=True, slots=True)
class Http2Params:
    """0 stands for unset."""

    stream_window_bytes: int = 0
    connection_window_bytes: int = 0
    is_adaptive: bool = False
    keep_alive_interval_s: float = 0.0
    keep_alive_timeout_s: float = 0.0
    keeps_alive_while_idle: bool = False
    max_frame_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EndpointMeta:
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted by key; exported with the prefix `dst_`."""
    tls: TlsIdentity | None = None
    hint: str = HINT_NONE
    opaque_transport_port: int = 0
    """Dial this port of the address instead, and name the real one in a transport header; 0 for none."""
    authority_override: str = ""
    weight: int = 1
    http2: Http2Params = Http2Params()
    zone_locality: str = ""
    """`local`, `remote` or empty."""
