"""`Expect: 100-continue`: whether a client still holds its request's body back (RFC 9110 section 10.1.1)."""

from __future__ import annotations

from proxy.http.exchange import Exchange


def asks_to_continue(exchange: Exchange) -> bool:
    """Whether the client waits for 100 (Continue). Such a client may never send its body, so after an early answer it
    is unknown where its next request begins.
    """
    return any(one.name == b"expect" for one in exchange.request.fields)
