"""How the refusal of a request, or of a whole connection, is told to those who run the proxy.

Whoever runs into a limit has to learn which: it is logged with its value. What
merely breaks the rules is counted; a log line for each would be the attacker's.
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
    """A request that no stage gets to see."""
    if faults is not None:
        faults.count(error.reason)
    if error.reason is Reason.OVER_LIMIT:
        _log.info("Request refused with %d: %s", error.status, error)


def note_flood(reason: Reason) -> None:
    """A connection that ends because of what its peer did; its meter counts it."""
    if reason in FLOODS:
        _log.info("HTTP/2 connection ended: %s", reason.value)
