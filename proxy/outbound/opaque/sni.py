"""SNI detection: the name that an app's own ClientHello asks for (docs/linkerd/outbound.md, sections 7.3 and 10).

It reads no more than the ClientHello takes; every byte of it goes on to the
server. A connection that is not TLS, or names no server, ends.
"""

from __future__ import annotations

from typing import Final

from proxy.core.failure.reason import Reason
from proxy.tls.hello import Hello, judge_hello
from proxy.transport.detection.first_bytes import Came, Rule, Unreadable

_NO_SNI: Final = Unreadable("Could not find SNI", Reason.PROTOCOL_ERROR)
_TOO_SLOW: Final = Unreadable("SNI detection timed out", Reason.PROTOCOL_ERROR)


class SniRule:
    """The name of a ClientHello, for `first_bytes.FirstBytes`. A connection that is lost before is not reported."""

    __slots__ = ()

    def patience_s(self, first: bytes) -> float:
        return 0.0

    def judge(self, first: bytes, came: Came | Reason) -> Hello | Unreadable | None:
        if came is Came.BYTES:
            verdict = judge_hello(first)
            if isinstance(verdict, Hello):
                return verdict if verdict.sni else _NO_SNI
            return None if verdict is None else _NO_SNI
        if came is Came.TIMEOUT:
            return _TOO_SLOW
        return _NO_SNI if came is Came.END else None


SNI: Final[Rule[Hello | Unreadable]] = SniRule()
