"""Configures OpenSSL before it is loaded: the order of TLS 1.3 cipher suites (docs/linkerd/identity-and-tls.md, section 5).

Imports nothing that imports ssl. Python's ssl cannot order the suites of
TLS 1.3. OpenSSL's configuration can, and it is read once, when the library is
loaded. A configuration that the user names (OPENSSL_CONF) is left alone; the
system's is not read, because ours is all that a proxy needs.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_VARIABLE: Final = "OPENSSL_CONF"

_CONFIGURATION: Final = b"""\
openssl_conf = sponson
[sponson]
ssl_conf = sponson_ssl
[sponson_ssl]
system_default = sponson_tls
[sponson_tls]
Ciphersuites = TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256
"""


def order_cipher_suites() -> bool:
    """Set Linkerd's order, AES-128 first, which is the cheapest that is secure enough. Returns False if OpenSSL is loaded
    already, or the user has a configuration.

    Without it connections work just as well, in OpenSSL's order (AES-256 first).
    """
    if "_ssl" in sys.modules or "_hashlib" in sys.modules or _VARIABLE in os.environ:
        return False
    fd = os.memfd_create("openssl.cnf", os.MFD_CLOEXEC)
    try:
        os.write(fd, _CONFIGURATION)
        os.environ[_VARIABLE] = f"/proc/self/fd/{fd}"
        import ssl

        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    finally:
        # A child process would look for a descriptor that it does not have.
        os.environ.pop(_VARIABLE, None)
        os.close(fd)
    return True
