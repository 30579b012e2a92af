"""HTTP detection."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Literal

from proxy.core.codec import Wire
from proxy.core.reactor import Reactor
from proxy.core.reason import Reason

Sniffed = Literal["http1", "http2", "opaque"]


def sniff(first: bytes) -> Sniffed:
    raise NotImplementedError


class Detection(Enum):
    HTTP1 = "http/1"
    HTTP2 = "http/2"
    NOT_HTTP = "not_http"
    READ_TIMEOUT = "read_timeout"
    ERROR = "error"
    """EOF before the first byte, or the connection is gone."""


class DetectCodec:
    """Calls `on_detected(detection, first_bytes)` once: hand the wire over to a codec there and feed it the bytes."""

    def __init__(
        self, wire: Wire, reactor: Reactor, timeout_s: float, on_detected: Callable[[Detection, bytes], None]
    ) -> None:
        raise NotImplementedError

    def feed(self, data: bytes) -> None: ...
    def eof(self) -> None: ...
    def writable(self, is_writable: bool) -> None: ...
    def lost(self, reason: Reason) -> None: ...
    def close(self) -> None: ...
