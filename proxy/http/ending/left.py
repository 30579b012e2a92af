"""A client that has ended its side of an HTTP/1 connection still gets its answer, but not for ever.

It may only have no more to say, so the answer is awaited; what may be waited for in vain has a limit, the one of opaque connections that
are half closed (`core/loop/stall.py`).
"""

from __future__ import annotations

from proxy.core.failure.reason import Reason
from proxy.core.loop.stall import Stall
from proxy.core.loop.timers import Wheel
from proxy.http.exchange import Exchange


def wait_for_answer(exchange: Exchange, wheel: Wheel | None, before: Stall | None) -> Stall | None:
    """Resets the exchange when its answer has stalled, unless the Stall is cancelled before; never without a wheel. `before`
    is that of the request before it, whose answer has come.
    """
    if before is not None:
        before.cancel()

    def moved_bytes() -> int:
        return exchange.response_bytes

    def reset() -> None:
        exchange.server.reset(Reason.PEER_CLOSED)
        exchange.request_reset(Reason.PEER_CLOSED)

    return None if wheel is None else Stall(wheel, moved_bytes, reset)
