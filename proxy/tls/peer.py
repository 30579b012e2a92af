"""Who the other side of a TLS connection is (docs/linkerd/identity-and-tls.md, section 5, Names).

Identities are DNS and URI SANs, in the certificate's order; other kinds and unusable names are skipped, and the CN is never asked. DNS names are
compared in lower case, URIs as normalised URLs. OpenSSL has verified the chain already. Two kinds of certificates that it accepts are refused
here: an authority's in the place of a workload's (as webpki does for Linkerd), and those that name characters that no identity has, because
identities go into header fields, logs and metrics, and a parser that drops such characters would read the name of another workload.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from proxy.core import limits
from proxy.core.watch import Watch
from proxy.tls.certificate.der import is_authority
from proxy.tls.certificate.revoked import NOTHING_REVOKED, Revoked

_DNS_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
"""RFC 1123 with underscores, which names of services in the field have. No trailing dot, no wildcard."""

_URI: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://(?P<host>(?:[A-Za-z0-9\-._~!$&'()*+,;=:@\[\]]|%[0-9A-Fa-f]{2})+)"
    r"(?P<rest>(?:[/?#](?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?#]|%[0-9A-Fa-f]{2})*)?)"
)
"""An absolute URI with an authority, in the characters of RFC 3986."""


_is_visible: Final = re.compile(r"[\x21-\x7e]*").fullmatch


class RefusedCertificateError(ValueError):
    """The peer's certificate was verified, but cannot be the identity of a workload; the text says why."""


class TlsPeer(NamedTuple):
    client_id: str
    """The first usable SAN of the peer's certificate; empty if there is none."""
    alpn: str
    """The protocol that was negotiated; empty for none."""
    serial: str = ""
    """The serial number of the peer's certificate in hexadecimal; empty without one."""


class TlsServing(NamedTuple):
    """What the handshake of an accepted connection needs."""

    context: ssl.SSLContext
    revoked: Watch[Revoked] = NOTHING_REVOKED
    """Certificates that are refused."""


class TlsTarget(NamedTuple):
    """What the handshake of a dialled connection needs."""

    context: ssl.SSLContext
    server_name: str
    """The name to send as SNI."""
    server_id: str
    """One of the SANs of the server's certificate must equal it."""
    revoked: Watch[Revoked] = NOTHING_REVOKED
    """Certificates that are refused."""


def identities(
    certificate: Mapping[str, Any] | None,  # as the ssl module has it
    certificate_der: bytes | None,
) -> list[str]:
    """The usable identities in the results of `SSLSocket.getpeercert()` and `getpeercert(True)`. Raises
    RefusedCertificateError."""
    if not certificate or certificate_der is None:
        return []
    if is_authority(certificate_der):
        raise RefusedCertificateError("the certificate is an authority's (CA:TRUE), not a workload's")
    found = []
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in ("DNS", "URI") and (_is_visible(value) is None or len(value) > limits.IDENTITY_BYTES):
            raise RefusedCertificateError(f"the certificate has a name that is no identity: {kind} {value[:100]!r}")
        name = dns_identity(value) if kind == "DNS" else uri_identity(value) if kind == "URI" else None
        if name is not None:
            found.append(name)
    return found


def dns_identity(text: str) -> str | None:
    """The name in lower case; None if it is not a DNS name or ends in a dot."""
    name = text.lower()
    return name if _DNS_NAME.fullmatch(name) else None


def uri_identity(text: str) -> str | None:
    """An absolute URI with scheme and host in lower case, or None."""
    parts = _URI.fullmatch(text)
    if parts is None:
        return None
    try:
        urlsplit(text)  # brackets of an IPv6 address
    except ValueError:
        return None
    return f"{parts['scheme'].lower()}://{parts['host'].lower()}{parts['rest']}"


def normalise(identity: str) -> str:
    """An identity from elsewhere (discovery, configuration) in the form that `identities` gives; ValueError if it is not
    one."""
    found = uri_identity(identity) if "://" in identity else dns_identity(identity)
    if found is None:
        raise ValueError(f"{identity!r} is neither a DNS name nor a URI")
    return found
