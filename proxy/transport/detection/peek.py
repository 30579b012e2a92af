"""Looking at the first bytes of an accepted socket without taking them (docs/linkerd/identity-and-tls.md, section 6).

It never spins. While the rest of something long is awaited, the kernel is asked
to wake us only for more (SO_RCVLOWAT); if it still wakes us for nothing, the
socket is left alone for a tick. `on_done` is called once, and then the socket
is as it was: all bytes are still to be read, and it is no longer watched.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from proxy.core import limits
from proxy.core.failure.errors import report_fault
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Timer


class Outcome(Enum):
    DECIDED = "the judge has answered"
    UNDECIDED = "the peer ended, or sent all that we look at, before the judge could answer"
    TIMEOUT = "the time is over"
    FAILED = "the connection is broken"


class Peeked(NamedTuple):
    outcome: Outcome
    verdict: Any  # not `object`: a compiled named tuple whose field is one cannot be made (mypyc looks the name up)
    """The judge's answer; None unless DECIDED."""
    has_bytes: bool


class Peek:
    """One look under way; made by `peek`."""

    __slots__ = (
        "_reactor",
        "_sock",
        "_fd",
        "_judge",
        "_on_done",
        "_seen",
        "_low_water",
        "_is_watching",
        "_deadline",
        "_rest",
    )

    def __init__(
        self, reactor: Reactor, sock: socket.socket, judge: Callable[[bytes], object], on_done: Callable[[Peeked], None]
    ) -> None:
        self._reactor = reactor
        self._sock = sock
        self._fd = sock.fileno()
        self._judge = judge
        self._on_done: Callable[[Peeked], None] | None = on_done
        self._seen = 0
        self._low_water = 1
        self._is_watching = False
        self._deadline: Timer | None = None
        self._rest: Timer | None = None

    def begin(self, timeout_s: float) -> None:
        self.look()
        if self._on_done is not None:
            self._deadline = self._reactor.wheel.after(timeout_s, self._timed_out)

    @property
    def has_bytes(self) -> bool:
        """Whether the peer has sent anything."""
        return self._seen > 0

    def cancel(self) -> None:
        """Stop looking; `on_done` will not be called. The caller closes the socket. Idempotent."""
        self._on_done = None
        self._release()

    def _timed_out(self) -> None:
        self._deadline = None
        self._finish(Outcome.TIMEOUT, None)

    def look(self) -> None:
        try:
            data = self._sock.recv(limits.HELLO_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            self._watch()
            return
        except OSError:
            self._finish(Outcome.FAILED, None)
            return
        has_grown = len(data) > self._seen
        self._seen = len(data)
        if has_grown:
            try:
                verdict = self._judge(data)
            except Exception:
                report_fault()
                self._finish(Outcome.FAILED, None)
                return
            if verdict is not None:
                self._finish(Outcome.DECIDED, verdict)
                return
        if not data or len(data) == limits.HELLO_BYTES:
            self._finish(Outcome.UNDECIDED, None)
        elif not has_grown and (hung_up := self._hung_up()) is not None:
            self._finish(hung_up, None)
        elif has_grown and self._ask_for_more(len(data) + 1):
            self._watch()
        else:
            self._take_a_rest()

    def _hung_up(self) -> Outcome | None:
        poller = select.poll()
        poller.register(self._fd, select.POLLRDHUP)
        events = poller.poll(0)
        if not events:
            return None
        return Outcome.FAILED if events[0][1] & select.POLLERR else Outcome.UNDECIDED

    def _ask_for_more(self, low_water: int) -> bool:
        self._low_water = low_water
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)
        except OSError:
            return False
        return True

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._reactor.loop.add_reader(self._fd, self.look)

    def _watch_unless_resting(self) -> None:
        if self._on_done is not None and self._rest is None:
            self._watch()

    def _unwatch(self) -> None:
        if self._is_watching:
            self._is_watching = False
            self._reactor.loop.remove_reader(self._fd)

    def _take_a_rest(self) -> None:
        self._unwatch()
        self._rest = self._reactor.wheel.arm(self._rested, 1)

    def _rested(self) -> None:
        self._rest = None
        if self._on_done is not None:
            self.look()
            self._watch_unless_resting()

    def _finish(self, outcome: Outcome, verdict: object) -> None:
        on_done = self._on_done
        if on_done is None:
            return
        self._on_done = None
        self._release()
        try:
            on_done(Peeked(outcome, verdict, self._seen > 0))
        except Exception:
            report_fault()
            self._sock.close()

    def _release(self) -> None:
        self._unwatch()
        deadline = self._deadline
        if deadline is not None:
            self._deadline = None
            deadline.cancel()
        rest = self._rest
        if rest is not None:
            self._rest = None
            rest.cancel()
        if self._low_water > 1:
            self._ask_for_more(1)


def peek(
    reactor: Reactor,
    sock: socket.socket,
    judge: Callable[[bytes], object],
    timeout_s: float,
    on_done: Callable[[Peeked], None],
) -> Peek:
    """Ask `judge` (None: not enough bytes yet) about all bytes at hand, whenever there are more.

    `on_done` is called once, perhaps before this returns; the socket stays the caller's, to serve or to close.
    UNDECIDED is "no TLS": what came is passed on, at an end without bytes only the end (`has_bytes`).
    """
    looking = Peek(reactor, sock, judge, on_done)
    looking.begin(timeout_s)
    return looking
