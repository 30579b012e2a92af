"""How a TLS connection ends: why it broke, by the error of a read or a write; and how its socket is closed."""

from __future__ import annotations

import ssl

from proxy.core.connection.dial import errno_name, reset_on_close
from proxy.core.failure.reason import Reason
from proxy.tls.context import forget_errors, is_cut


def reason_of(error: OSError) -> Reason:
    if is_cut(error):
        return Reason.PEER_CLOSED
    if isinstance(error, ssl.SSLError):
        return Reason.PROTOCOL_ERROR
    return Reason.CONNECTION_RESET if errno_name(error) in ("ECONNRESET", "EPIPE") else Reason.PEER_CLOSED


def shut(tls: ssl.SSLSocket, reason: Reason, has_ended: bool) -> None:
    try:
        if reason is Reason.CONNECTION_RESET:
            reset_on_close(tls)
        elif not has_ended and (reason is Reason.COMPLETE or reason is Reason.SHUTDOWN):
            tls.unwrap()
    except OSError:
        forget_errors()  # the peer was faster, or takes nothing more
    tls.close()
