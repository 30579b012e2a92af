"""Reports the refusal of a request, or of a whole connection, to those who run the proxy.

Both are counted. A request that is refused is logged with what was wrong with
it, so that it need not be guessed where a 400 comes from; the log folds lines that
come too fast (core/log/fold.py), so that an attacker cannot fill it.
"""

from __future__ import annotations

from typing import Final

from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.faults import Faults
from proxy.core.failure.reason import Reason
from proxy.core.log import logger

_log: Final = logger(__name__)

FLOODS: Final = frozenset((Reason.RESET_FLOOD, Reason.CONTROL_FLOOD, Reason.HEADER_FLOOD))


def note_refusal(error: ProtocolError, faults: Faults | None) -> None:
    """Report a request that is refused before any stage sees it."""
    if faults is not None:
        faults.count(error.reason)
    log_refusal(error.status, str(error))


def log_refusal(status: int, text: str) -> None:
    _log.info("Request refused with %d: %s", status, text)


def note_flood(reason: Reason) -> None:
    """Report a connection that ends because its peer broke the rules; its meter counts it."""
    if reason in FLOODS:
        _log.info("HTTP/2 connection ended: %s", reason.value)
