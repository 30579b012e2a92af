"""`Expect: 100-continue`: whether a client still holds its request's body back (RFC 9110 section 10.1.1)."""

from __future__ import annotations

from proxy.http.exchange import Exchange


def asks_to_continue(exchange: Exchange) -> bool:
    """It may not send its body at all, so once it is answered nobody knows where its next request begins."""
    return any(one.name == b"expect" for one in exchange.request.fields)
