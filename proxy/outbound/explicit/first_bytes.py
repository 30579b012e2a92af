"""Finds the version of HTTP that an explicit client speaks: everything but the preface of HTTP/2 goes to the HTTP/1
codec.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from proxy.core.failure.reason import Reason
from proxy.transport.detection.first_bytes import Came, Rule

_TLS_HANDSHAKE: Final = b"\x16"
"""The type of a ClientHello's record (RFC 8446, section 5.1); no method begins with it."""
_PREFACE: Final = b"PRI * HTTP/2.0\r\n"


class Beginning(Enum):
    HTTP_1 = "a request"
    HTTP_2 = "the preface"
    TLS = "a ClientHello"
    ENDED = "ended before a request"
    TIMEOUT = "nothing to ask in time"


class ExplicitRule:
    """The rule for an explicit client's first bytes; see transport/detection/first_bytes.py."""

    __slots__ = ()

    def patience_s(self, first: bytes) -> float:
        return 0.0

    def judge(self, first: bytes, came: Came | Reason) -> Beginning | None:
        if came is Came.TIMEOUT:
            return Beginning.TIMEOUT
        if came is not Came.BYTES:
            return Beginning.ENDED if came is Came.END else None
        if first[:1] == _TLS_HANDSHAKE:
            return Beginning.TLS
        if not _PREFACE.startswith(first[: len(_PREFACE)]):
            return Beginning.HTTP_1
        return Beginning.HTTP_2 if len(first) >= len(_PREFACE) else None


EXPLICIT: Final[Rule[Beginning]] = ExplicitRule()
