"""Repeat: decides whether a request may be sent once more after its connection failed.

Retries that a route asks for, after an answer or a timeout, are decided in outbound/http/retry/.

A client codec reports how far the request can have got; it does not decide.
What was certainly not begun may be sent again whatever its method (RFC 9113
section 8.7); what may have been begun only if doing it twice is the same (RFC
9110 section 9.2.2). Either way nothing of a response has come, and all of the
request is still at hand.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange

BEGUN: Final = 0
"""The endpoint can have seen the request."""
RACED: Final = 1
"""The request went to a connection that had served others, and its peer closed it without a byte of a response: most
likely it never read the request."""
RACE_S: Final = 0.1
"""If an endpoint closes later than this after a request was sent to it, and after the end of the client's connection
was passed on, it has closed because the client left: sending the request again would be wasted work.
"""
NOT_BEGUN: Final = 2
"""The endpoint has certainly not acted on it: the connection was never made, or the peer said so."""

_CLOSED: Final = (Reason.PEER_CLOSED, Reason.CONNECTION_RESET)

IDEMPOTENT: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))


def is_idempotent(exchange: Exchange) -> bool:
    """The request may be sent twice, and all of it is in its head."""
    request = exchange.request
    return (
        exchange.request_ended
        and not exchange.request_bytes
        and not request.wants_tunnel
        and request.method in IDEMPOTENT
    )


def ends_with_client(exchange: Exchange, reason: Reason) -> bool:
    """Whether the endpoint's connection ended only after the end of the client's had been passed on to it: the endpoint has
    left because its client had, which is no failure."""
    return exchange.has_left and reason in _CLOSED


def may_repeat(exchange: Exchange, progress: int) -> bool:
    """Whether a request may be sent again after its connection failed with this much progress."""
    if exchange.reason is not None or exchange.response is not None or exchange.is_body_sent:
        return False
    if exchange.attempts >= limits.ATTEMPTS:
        return False
    return progress == NOT_BEGUN or (progress == RACED and is_idempotent(exchange))
