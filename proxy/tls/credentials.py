"""Our certificate and the trust anchors, as contexts that rotate."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from proxy.core.watch import Watch


class CredentialsError(Exception):
    """A certificate, key or trust anchor cannot be used; the text says which and why."""


class Credentials:
    is_ready: Watch[bool]
    local_name: str
    expires_at: float
    """Wall clock, seconds since the epoch; 0 before the first certificate."""

    def __init__(self, local_name: str, trust_anchors_pem: str, local_id: str = "") -> None:
        """`local_id` is the identity that our certificate must name (SPIFFE); the server name if empty."""
        raise NotImplementedError

    def install(self, leaf_der: bytes, intermediates: Sequence[bytes], key_der: bytes, expires_at: float) -> None:
        """Check (chain to the anchors, name, key) and use from now on. CredentialsError if it will not do: the old one stays."""

    def server_context(self, is_direct: bool) -> ssl.SSLContext:
        """For accepting; before the first certificate one whose handshakes fail."""
        raise NotImplementedError

    def client_context(self, offers_transport_header: bool) -> ssl.SSLContext:
        """For dialling; before the first certificate one without a client certificate. Ask anew for each dial: it rotates."""
        raise NotImplementedError
