"""Pool: the client connections to one endpoint, all alike (HTTP/2; for HTTP/1 see h1/pool.py).

Chooses a connection at once and never scans: a connection is in `ready`
exactly while it can take one more stream, and tells the pool when that
changes. A connection that cannot be used again is never chosen.

An attempt may be given to a connection that is still being made. Over HTTP/1
it is attached when the connection stands; over HTTP/2 at once: the wire
gathers, its codec's backpressure bounds what it gathers, and a failed connect
ends the attempt like any other loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from proxy.core.failure.reason import Reason
from proxy.http.attempt import Attempt

_MOST_PATIENCE: Final = 64


class ClientConnection(Protocol):
    def open(self, attempt: Attempt) -> None:
        """Attach the attempt to a new stream; it was taken out of `ready` and puts itself back if it has more room."""

    def is_stale(self) -> bool:
        """Whether it is certain that nothing sent here would be answered."""

    @property
    def keep_alive_s(self) -> float:
        """How long its peer leaves it open while it is idle; 0 if the peer has not said so."""

    def close(self) -> None:
        """Finish what runs, take nothing new."""


class Pool:
    __slots__ = ("on_empty", "patience", "_dial", "ready", "_all")

    def __init__(self, dial: Callable[[Pool], ClientConnection]) -> None:
        self.on_empty: Callable[[], None] | None = None
        """Called when the last usable connection is gone."""
        self.patience = 1
        """How many times its keepalive interval a new connection waits before it pings."""
        self._dial = dial
        self.ready: dict[ClientConnection, None] = {}
        """Connections that can take one more stream, the most recently used last. One that was given a stream and has not
        been retired may put itself back without a call of `release`."""
        self._all: set[ClientConnection] = set()

    def open(self, attempt: Attempt) -> None:
        """Attach the attempt to a stream: the most recently used connection's, or a new one's."""
        if attempt.exchange.reason is not None:
            return  # its client left while it waited
        if self.ready and not attempt.is_fresh:
            connection = self.ready.popitem()[0]
        else:
            connection = self._dial(self)
            self._all.add(connection)
        connection.open(attempt)

    def connect(self) -> None:
        """Dial one more connection, before any exchange needs it."""
        connection = self._dial(self)
        self._all.add(connection)
        self.ready[connection] = None

    def __len__(self) -> int:
        """The number of connections that may be used again, with those that are still being made."""
        return len(self._all)

    def release(self, connection: ClientConnection) -> None:
        """The connection has room again."""
        if connection in self._all:
            self.ready[connection] = None

    def hold(self, connection: ClientConnection) -> None:
        """The connection has no room for now."""
        self.ready.pop(connection, None)

    def retire(self, connection: ClientConnection) -> None:
        """Use this connection for nothing new: it closes, has sent GOAWAY, or has used all of its stream numbers."""
        self.ready.pop(connection, None)
        if connection in self._all:
            self._all.discard(connection)
            if not self._all and self.on_empty is not None:
                self.on_empty()

    def calm_down(self) -> None:
        """The endpoint finds that we ask too much of it: pings come half as often from now on (gRPC, A8: client-side keepalive)."""
        self.patience = min(2 * self.patience, _MOST_PATIENCE)

    def part(self) -> None:
        """Nothing more will be opened here: release the owner, which breaks the cycle with it, so that both are freed."""
        self.on_empty = None
        self._dial = _no_dial

    def close(self, reason: Reason) -> None:
        for connection in list(self._all):
            connection.close()


def _no_dial(pool: Pool) -> ClientConnection:
    raise AssertionError("a pool that was parted from is opened")
