"""Trust anchors: which certificates of a PEM text can be used.

An unusable one is passed over, as Linkerd does; none at all is the caller's error.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

_BLOCK: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def usable(pem: str) -> tuple[bytes, ...]:
    """The certificates that OpenSSL takes, as DER, in their order; whatever stands between them does not matter."""
    found: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for block in _BLOCK.findall(pem):
        try:
            der = ssl.PEM_cert_to_DER_cert(block)
            context.load_verify_locations(cadata=der)
        except (ValueError, ssl.SSLError):
            continue
        found.append(der)
    return tuple(found)
