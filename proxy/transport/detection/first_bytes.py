"""FirstBytes: the codec of a connection until its first bytes decide which codec it gets.

It keeps the bytes that came, the end if that came too, and the timers. A rule
judges the bytes: rules know nothing of wires and are values that all connections share
(`transport/detection/detect.py`, `transport/detection/header.py`, `outbound/opaque/sni.py`, `outbound/explicit/first_bytes.py`).
A peer that sends nothing may be waiting for its server to speak; `when_silent` is for finding that out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from proxy.core.codec import Codec, Wire, hand_over
from proxy.core.failure.errors import report_fault
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer, Wheel

Found = TypeVar("Found")
Found_co = TypeVar("Found_co", covariant=True)


class Came(Enum):
    """What has just happened to the connection when a rule is asked."""

    BYTES = "bytes came, and more may follow"
    END = "the peer will send no more"
    TIMEOUT = "the time is over"


class Rule(Protocol[Found_co]):
    """Decides what the first bytes of a connection are."""

    def patience_s(self, first: bytes) -> float:
        """How long to wait for more while nothing is decided and these bytes have come; 0 means the whole timeout."""

    def judge(self, first: bytes, came: Came | Reason) -> Found_co | None:
        """What the bytes so far are; `came` is a Reason if the connection is gone.

        None: more bytes may decide it, or the loss need not be reported. After END and TIMEOUT an answer is due. Never raises for what a peer sent.
        """


class Opened(NamedTuple):
    """The codec of a connection whose first bytes were understood."""

    codec: Codec
    rest: bytes
    """What this codec is fed first: all bytes that came, or those after a part that was for the proxy itself."""


class Unreadable(NamedTuple):
    """What rules answer when the first bytes are not what they look for."""

    text: str
    reason: Reason
    """The reason to end the wire with."""


class FirstBytes(Codec, Generic[Found]):
    __slots__ = (
        "_wire", "_rule", "_then", "_held", "_has_eof", "_deadline", "_patience", "_wheel", "_silence", "_on_over",
    )  # fmt: skip

    def __init__(
        self,
        wire: Wire,
        wheel: Wheel,
        rule: Rule[Found],
        timeout_s: float,
        then: Callable[[Found, bytes], Opened | Reason | None],
    ) -> None:
        """`then` is called once at most, with what was found and all bytes that came. A Reason that it returns ends the
        connection; None says that it gave the wire to another codec itself. After a loss what it returns is ignored.
        `close` ends a connection without calling it."""
        self._wire = wire
        self._wheel = wheel
        self._rule: Rule[Found] = rule
        self._then: Callable[[Found, bytes], Opened | Reason | None] | None = then
        self._held = b""
        self._has_eof = False
        self._deadline: Timer = wheel.after(timeout_s, self._timed_out)
        self._patience: Timer | None = None
        self._silence: Timer | None = None
        self._on_over: Callable[[], None] | None = None

    def when_silent(self, after_s: float, begin: Callable[[], None], on_over: Callable[[], None]) -> None:
        """Call `begin` if nothing has come until then; and `on_over` once it is decided, or the connection is gone, whether
        `begin` was called or not. Must be called before anything can have come."""
        self._silence = self._wheel.after(after_s, begin)
        self._on_over = on_over

    def decide(self, found: Found) -> None:
        """Decide from outside, whatever bytes have come so far: calls `then`, unless it has been called already."""
        if self._then is not None:
            self._conclude(found, Came.TIMEOUT)

    # ---- Codec

    def feed(self, data: bytes) -> None:
        if self._then is None:
            return
        self._held += data
        self._break_silence()
        is_undecided = self._ask(Came.BYTES)
        if is_undecided and self._patience is None:
            patience_s = self._rule.patience_s(self._held)
            if patience_s:
                self._patience = self._wheel.after(patience_s, self._lost_patience)

    def eof(self) -> None:
        self._has_eof = True
        self._ask(Came.END)

    def writable(self, is_writable: bool) -> None:
        """Nothing to do: nothing is written before the peer's protocol is known."""

    def lost(self, reason: Reason) -> None:
        self._ask(reason)
        self._forget()
        self._tell_over()

    def close(self) -> None:
        """It is not known yet where the connection goes, so it ends."""
        if self._then is not None:
            self._forget()
            self._tell_over()
            self._wire.abort(Reason.SHUTDOWN)

    def is_idle(self) -> bool:
        return True

    # ----

    def _lost_patience(self) -> None:
        self._patience = None
        if not self._rule.patience_s(self._held):
            return  # what came since is worth the whole timeout
        self._timed_out()

    def _timed_out(self) -> None:
        try:
            self._ask(Came.TIMEOUT)
        except Exception:  # of a timer: the connection, which guards its own calls, would live on without a codec
            report_fault()
            self._wire.abort(Reason.INTERNAL)

    def _ask(self, came: Came | Reason) -> bool:
        """Ask the rule. Returns whether it wants more."""
        if self._then is None:
            return False
        found = self._rule.judge(self._held, came)
        if found is None:
            return True
        self._conclude(found, came)
        return False

    def _conclude(self, found: Found, came: Came | Reason) -> None:
        then = self._then
        assert then is not None
        first = self._held
        self._forget()
        outcome = then(found, first)
        self._tell_over()
        if outcome is None or isinstance(came, Reason):
            return
        if isinstance(outcome, Opened):
            hand_over(self._wire, outcome.codec, outcome.rest, self._has_eof)
        else:
            self._wire.abort(outcome)

    def _tell_over(self) -> None:
        on_over = self._on_over
        if on_over is not None:
            self._on_over = None
            on_over()

    def _break_silence(self) -> None:
        silence = self._silence
        if silence is not None:
            self._silence = None
            silence.cancel()

    def _forget(self) -> None:
        self._then = None
        self._held = b""
        self._deadline.cancel()
        self._break_silence()
        patience = self._patience
        if patience is not None:
            self._patience = None
            patience.cancel()
