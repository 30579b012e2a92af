"""Protocols: what a port or a destination speaks according to its policy, in both directions.

The closed list; a policy holds one of these.
"""

from __future__ import annotations

from typing import Final

DETECT: Final = "detect"
OPAQUE: Final = "opaque"
TLS: Final = "tls"
HTTP_1: Final = "http1"
HTTP_2: Final = "http2"
GRPC: Final = "grpc"
