"""SNI detection: the name that an app's own ClientHello asks for (docs/linkerd/outbound.md, sections 7.3 and 10).

Reads no more than the ClientHello takes and keeps every byte for the
server; what is no TLS, or names nobody, ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.codec import Wire
from proxy.core.reactor import Reactor
from proxy.core.reason import Reason
from proxy.core.timers import Timer
from proxy.tls.hello import Hello, judge_hello


class HelloCodec:
    """Calls `on_named(sni, bytes)` once: hand the wire over there; or `on_failed(text)`, and aborts the wire."""

    __slots__ = ("has_eof", "_wire", "_held", "_on_named", "_on_failed", "_deadline", "_is_over")

    def __init__(
        self,
        wire: Wire,
        reactor: Reactor,
        timeout_s: float,
        on_named: Callable[[str, bytes], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self.has_eof = False
        self._wire = wire
        self._held = b""
        self._on_named = on_named
        self._on_failed = on_failed
        self._deadline: Timer = reactor.wheel.after(timeout_s, self._timed_out)
        self._is_over = False

    def feed(self, data: bytes) -> None:
        self._held += data
        verdict = judge_hello(self._held)
        if isinstance(verdict, Hello) and verdict.sni:
            self._end()
            self._on_named(verdict.sni, self._held)
        elif verdict is not None:
            self._fail("Could not find SNI")

    def eof(self) -> None:
        self.has_eof = True
        self._fail("Could not find SNI")

    def writable(self, is_writable: bool) -> None:
        """Nothing is written here."""

    def lost(self, reason: Reason) -> None:
        self._end()

    def close(self) -> None:
        """Nobody knows yet where it goes: it ends."""
        if not self._is_over:
            self._end()
            self._wire.abort(Reason.SHUTDOWN)

    def is_idle(self) -> bool:
        return not self._is_over

    def _timed_out(self) -> None:
        self._fail("SNI detection timed out")

    def _fail(self, text: str) -> None:
        if not self._is_over:
            self._end()
            self._on_failed(text)
            self._wire.abort(Reason.PROTOCOL_ERROR)

    def _end(self) -> None:
        self._is_over = True
        self._deadline.cancel()
