"""The answers that an HTTP/1 server gives without asking a stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.faults import Faults
from proxy.core.failure.reason import Reason
from proxy.http.ending.refusal import log_refusal, note_refusal
from proxy.http.exchange import Exchange, Stage
from proxy.http.head import ResponseHead
from proxy.http.headers import field

_SHOWN_BYTES: Final = 100
_EMPTY: Final = field(b"content-length", b"0")


class BadTarget:
    """The stage of requests whose target their method cannot have: they get no further (docs/linkerd/inbound.md, section 8)."""

    def dispatch(self, exchange: Exchange) -> None:
        request = exchange.request
        method, target = request.method[:_SHOWN_BYTES], request.path[:_SHOWN_BYTES]
        log_refusal(400, f"{method.decode('latin-1')} cannot have the target {target!r}")
        exchange.reply(ResponseHead(400, [_EMPTY], 0), Reason.PROTOCOL_ERROR)


BAD_TARGET: Final[Stage] = BadTarget()


def refused(error: ProtocolError, faults: Faults | None, on_bad_head: Callable[[], None] | None) -> ResponseHead:
    """The answer to a request that no stage gets to see; counted and logged."""
    note_refusal(error, faults)
    if on_bad_head is not None:
        on_bad_head()
    return ResponseHead(error.status, [_EMPTY], 0)


def count_incomplete(faults: Faults | None, on_bad_head: Callable[[], None] | None) -> None:
    """A client has ended its connection in the middle of a head."""
    if faults is not None:
        faults.count_as("incomplete_head")
    if on_bad_head is not None:
        on_bad_head()
