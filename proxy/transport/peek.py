"""Looking at the first bytes of an accepted socket without taking them (reference: identity-and-tls, section 6)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from proxy.core.reactor import Reactor


class Outcome(Enum):
    DECIDED = "the judge has answered"
    UNDECIDED = "the peer ended, or sent all that we look at, before the judge could answer"
    TIMEOUT = "the time is over"
    FAILED = "the connection is broken"


class Peeked(NamedTuple):
    outcome: Outcome
    verdict: Any
    """What the judge said; None unless DECIDED."""
    has_bytes: bool


class Peek:
    def cancel(self) -> None: ...


def peek(
    reactor: Reactor,
    sock: socket.socket,
    judge: Callable[[bytes], Any],
    timeout_s: float,
    on_done: Callable[[Peeked], None],
) -> Peek:
    """Ask `judge` (None: not enough bytes yet) about all bytes at hand, whenever there are more. `on_done` is called
    once, perhaps before this returns; the socket stays the caller's, to serve or to close."""
    raise NotImplementedError
