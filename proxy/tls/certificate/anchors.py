"""Trust anchors: which certificates of a PEM text can be used.

Certificates that cannot be used are skipped, as in Linkerd; the caller decides what it means if none is left.
"""

from __future__ import annotations

import ssl

from proxy.tls.certificate.pem import blocks


def usable(pem: str) -> tuple[bytes, ...]:
    """The certificates that OpenSSL accepts, as DER, in their order; text between them does not matter."""
    found: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for block in blocks(pem, "CERTIFICATE"):
        try:
            der = ssl.PEM_cert_to_DER_cert(block)
            context.load_verify_locations(cadata=der)
        except (ValueError, ssl.SSLError):
            continue
        found.append(der)
    return tuple(found)
