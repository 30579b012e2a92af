"""What a client that names us as its proxy speaks to us: HTTP/1, HTTP/2, or CONNECT and then anything.

A CONNECT is waited for until the end of its head, since what follows it is for the
destination. Any other request goes to its codec as soon as it is none.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from proxy.core import limits
from proxy.core.reason import Reason
from proxy.http.h1.repair import with_crlf
from proxy.transport.first_bytes import Came, Rule

_CONNECT: Final = b"CONNECT "
_PREFACE: Final = b"PRI * HTTP/2.0\r\n"


class ConnectHead(NamedTuple):
    """The head of a CONNECT, without the empty line at its end, and what came behind it."""

    head: bytes
    rest: bytes


class NoConnect(Enum):
    """Everything else that a beginning may be."""

    HTTP_1 = "a request"
    HTTP_2 = "the preface"
    TOO_LONG = "the head of the CONNECT is too long"
    ENDED = "ended before a request"
    TIMEOUT = "nothing to ask in time"


class ExplicitRule:
    """What a client speaks to its proxy, for `first_bytes.FirstBytes`: HTTP/1, HTTP/2, or CONNECT."""

    __slots__ = ()

    @property
    def patience_s(self) -> float:
        return 0.0

    def judge(self, first: bytes, came: Came | Reason) -> ConnectHead | NoConnect | None:
        if came is Came.TIMEOUT:
            return NoConnect.TIMEOUT
        if came is not Came.BYTES:
            return NoConnect.ENDED if came is Came.END else None
        if first.startswith(_CONNECT):
            first = with_crlf(first) or first
            end = first.find(b"\r\n\r\n")
            if end >= 0:
                return ConnectHead(first[:end], first[end + 4 :])
            return NoConnect.TOO_LONG if len(first) > limits.HEAD_BYTES else None
        if not _CONNECT.startswith(first[: len(_CONNECT)]) and not _PREFACE.startswith(first[: len(_PREFACE)]):
            return NoConnect.HTTP_1
        return NoConnect.HTTP_2 if len(first) >= len(_PREFACE) else None


EXPLICIT: Final[Rule[ConnectHead | NoConnect]] = ExplicitRule()
