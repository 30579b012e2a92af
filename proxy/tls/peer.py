"""Who the other side of a TLS connection is (reference: identity-and-tls, section 5, Names).

Law: identities are DNS and URI SANs, in the certificate's order; other
kinds and unusable names are skipped, the CN is never asked. DNS names are
compared in lower case, URIs as normalised URLs. The certificate was already
verified by OpenSSL: only what it says is read here.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

_DNS_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
"""RFC 1123 with underscores, which names of services in the field have. No trailing dot, no wildcard."""


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


def identities(certificate: Mapping[str, Any] | None) -> list[str]:
    """The usable identities of what `SSLSocket.getpeercert()` says."""
    if not certificate:
        return []
    found = []
    for kind, value in certificate.get("subjectAltName", ()):
        name = dns_identity(value) if kind == "DNS" else uri_identity(value) if kind == "URI" else None
        if name is not None:
            found.append(name)
    return found


def dns_identity(text: str) -> str | None:
    """The name in lower case, or None if it is no DNS name or ends in a dot."""
    name = text.lower()
    return name if _DNS_NAME.fullmatch(name) else None


def uri_identity(text: str) -> str | None:
    """An absolute URI with scheme and host in lower case, or None."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    if not parts.scheme or not parts.netloc or not text.isascii():
        return None
    return parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower()).geturl()


def normalise(identity: str) -> str:
    """An identity from elsewhere (discovery, configuration) as `identities` would say it; ValueError if it is none."""
    found = uri_identity(identity) if "://" in identity else dns_identity(identity)
    if found is None:
        raise ValueError(f"{identity!r} is neither a DNS name nor a URI")
    return found
