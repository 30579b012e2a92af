"""Reports the refusal of a request, or of a whole connection, to those who run the proxy.

A limit that was reached is logged with its value, so that users can find out
which. What merely breaks the rules is counted, because with a log line for each
an attacker could fill the log.
"""

from __future__ import annotations

from typing import Final

from proxy.core.errors import ProtocolError
from proxy.core.faults import Faults
from proxy.core.log import logger
from proxy.core.reason import Reason

_log: Final = logger(__name__)

FLOODS: Final = frozenset((Reason.RESET_FLOOD, Reason.CONTROL_FLOOD, Reason.HEADER_FLOOD))


def note_refusal(error: ProtocolError, faults: Faults | None) -> None:
    """Report a request that is refused before any stage sees it."""
    if faults is not None:
        faults.count(error.reason)
    if error.reason is Reason.OVER_LIMIT:
        _log.info("Request refused with %d: %s", error.status, error)


def note_flood(reason: Reason) -> None:
    """Report a connection that ends because its peer broke the rules; its meter counts it."""
    if reason in FLOODS:
        _log.info("HTTP/2 connection ended: %s", reason.value)
