"""The exceptions that cross a function boundary on the data path.

A codec raises these inside itself and catches them at its own edge;
nothing here ever reaches a socket callback.
"""

from __future__ import annotations

from typing import Final

from proxy.core.failure.reason import Reason
from proxy.core.log import logger

_log: Final = logger(__name__)


class ProtocolError(Exception):
    """The peer broke the rules of one message or of the whole connection."""

    def __init__(self, text: str, reason: Reason = Reason.PROTOCOL_ERROR, status: int = 400) -> None:
        super().__init__(text)
        self.reason: Final = reason
        self.status: Final = status


def report_fault() -> None:
    """Log an unexpected exception that was caught at the edge of a connection or a stream."""
    _log.error("A fault of ours ended a connection or a stream", exc_info=True)
