"""The transport header."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from proxy.core.codec import Wire
from proxy.core.reactor import Reactor
from proxy.core.reason import Reason

ALPN = "transport.l5d.io/v1"


class TransportHeader(NamedTuple):
    port: int
    name: str = ""
    session_protocol: Literal["", "http/1", "http/2"] = ""


class HeaderError(Exception): ...


def encode(header: TransportHeader) -> bytes:
    raise NotImplementedError


def decode(data: bytes) -> tuple[TransportHeader, bytes] | None:
    """The header and what follows it; None if more bytes are needed; HeaderError if it is none."""
    raise NotImplementedError


class HeaderCodec:
    """`on_header(header, rest)` once: hand the wire over there; or `on_failed(text)` and the wire is aborted."""

    def __init__(
        self,
        wire: Wire,
        reactor: Reactor,
        timeout_s: float,
        on_header: Callable[[TransportHeader, bytes], None],
        on_failed: Callable[[str], None],
    ) -> None:
        raise NotImplementedError

    def feed(self, data: bytes) -> None: ...
    def eof(self) -> None: ...
    def writable(self, is_writable: bool) -> None: ...
    def lost(self, reason: Reason) -> None: ...
    def close(self) -> None: ...
