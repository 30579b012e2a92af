"""HTTP detection: what the first bytes of a connection are (docs/linkerd/inbound.md, section 2).

`sniff` is Linkerd's rule on one read, fewer than 14 bytes included.
Where that rule would take a slow HTTP client for opaque TCP, DetectCodec
departs from it for the client's good: as long as all bytes so far are the
beginning of an HTTP request, it waits for more, for PATIENCE_S at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final, Literal

from proxy.core.codec import Wire
from proxy.core.reactor import Reactor
from proxy.core.reason import Reason
from proxy.core.timers import Timer

PATIENCE_S: Final = 0.2
"""How long a beginning of HTTP that is too short to tell may grow; not longer, since it may be a protocol
whose client waits for its server's word."""

_SHORTEST_BYTES: Final = 14
"""Of `GET / HTTP/1.1`, and of PREFACE."""
_PREFACE: Final = b"PRI * HTTP/2.0"
_LONGEST_BYTES: Final = 1024
"""Linkerd looks at no more."""

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_TARGET: Final = rb"[\x21-\x7e\x80-\xff]"
_REQUEST_LINE: Final = re.compile(
    rb"(?:\r?\n)*" + _TOKEN + rb"+ " + _TARGET + rb"+ HTTP/1\.[01]\r?\n",
)
_VERSION: Final = b"HTTP/1."
_BEGINNING: Final = re.compile(
    rb"(?:\r?\n)*\r?(?:"
    + _TOKEN
    + rb"+(?: (?:"
    + _TARGET
    + rb"+(?: (HTTP/1\.[01]\r?|H|HT|HTT|HTTP|HTTP/|HTTP/1|HTTP/1\.)?)?)?)?)?"
)

Sniffed = Literal["http1", "http2", "opaque"]


def sniff(first: bytes) -> Sniffed:
    """What the first read of a connection says: HTTP/1 is a request line, whole or begun (RFC 9112, section 3, with
    the leniency of the parser that Linkerd uses: empty lines before it, a bare LF at its end)."""
    if len(first) < _SHORTEST_BYTES:
        return "opaque"
    if first.startswith(_PREFACE):
        return "http2"
    return "http1" if _is_request(first[:_LONGEST_BYTES]) else "opaque"


def _is_request(first: bytes) -> bool:
    return _REQUEST_LINE.match(first) is not None or _BEGINNING.fullmatch(first) is not None


def may_become_http(first: bytes) -> bool:
    """Too short to tell, but every byte fits: the rest may make it HTTP."""
    return len(first) < _SHORTEST_BYTES and (_PREFACE.startswith(first) or _is_request(first))


class Detection(Enum):
    HTTP1 = "http/1"
    HTTP2 = "http/2"
    NOT_HTTP = "not_http"
    READ_TIMEOUT = "read_timeout"
    ERROR = "error"
    """EOF before the first byte (`socket closed before protocol detection`), or the connection is gone."""


_DETECTIONS: Final[dict[str, Detection]] = {
    "http1": Detection.HTTP1,
    "http2": Detection.HTTP2,
    "opaque": Detection.NOT_HTTP,
}


class DetectCodec:
    """Calls `on_detected(detection, first_bytes)` once: hand the wire over to a codec there, feed it the bytes, and
    `eof` if `has_eof` says so. After ERROR the wire is aborted here."""

    __slots__ = ("has_eof", "_wire", "_wheel", "_held", "_on_detected", "_deadline", "_patience")

    def __init__(
        self, wire: Wire, reactor: Reactor, timeout_s: float, on_detected: Callable[[Detection, bytes], None]
    ) -> None:
        self.has_eof = False
        self._wire = wire
        self._wheel = reactor.wheel
        self._held = b""
        self._on_detected: Callable[[Detection, bytes], None] | None = on_detected
        self._patience: Timer | None = None
        self._deadline: Timer = self._wheel.after(timeout_s, self._timed_out)

    def feed(self, data: bytes) -> None:
        self._held += data
        if not may_become_http(self._held):
            self._say(_DETECTIONS[sniff(self._held)])
        elif self._patience is None:
            self._patience = self._wheel.after(PATIENCE_S, self._timed_out)

    def eof(self) -> None:
        self.has_eof = True
        if self._held:
            self._say(_DETECTIONS[sniff(self._held)])
        else:
            self._say(Detection.ERROR)
            self._wire.abort(Reason.PEER_CLOSED)

    def writable(self, is_writable: bool) -> None:
        """Nothing is written here."""

    def lost(self, reason: Reason) -> None:
        self._say(Detection.ERROR)

    def close(self) -> None:
        """Nobody has understood it yet: it ends, and `on_detected` is not called."""
        if self._on_detected is not None:
            self._forget()
            self._wire.abort(Reason.SHUTDOWN)

    def is_idle(self) -> bool:
        return True

    def _timed_out(self) -> None:
        self._say(Detection.NOT_HTTP if self._held else Detection.READ_TIMEOUT)

    def _say(self, detection: Detection) -> None:
        on_detected = self._on_detected
        if on_detected is None:
            return
        held = self._held
        self._forget()
        on_detected(detection, held)

    def _forget(self) -> None:
        self._on_detected = None
        self._held = b""
        self._deadline.cancel()
        patience = self._patience
        if patience is not None:
            self._patience = None
            patience.cancel()
