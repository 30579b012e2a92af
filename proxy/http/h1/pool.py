"""H1Pool: the HTTP/1 connections to one endpoint, each kept for one authority and one form of target.

Law: as Pool's, and: a request finds only connections that carried its own
authority (reference: outbound, section 9.3); a lonely request gets a
connection that is closed behind it; the longest idle is closed first, by one
slot in the wheel for all of them. Everything is O(1) in the number of
connections and of authorities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.reason import Reason
from proxy.core.timers import Expires, Wheel
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.http.pool import ClientConnection, Pool

IDLE_TIMEOUT_S: Final = 3.0
"""linkerd2-proxy's."""
MAX_IDLE: Final = 1 << 30


class Line:
    """The connections that serve one authority."""

    __slots__ = ("key", "ready", "count")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.ready: dict[ClientConnection, None] = {}
        self.count = 0
        """Ready or busy."""


class H1Pool(Pool):
    __slots__ = ("_wheel", "_idle_timeout_s", "_max_idle", "_lines", "_homes", "_idle", "_sweep")

    def __init__(
        self,
        dial: Callable[[Pool], ClientConnection],
        wheel: Wheel,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        max_idle: int = MAX_IDLE,
    ) -> None:
        super().__init__(dial)
        self._wheel = wheel
        self._idle_timeout_s = idle_timeout_s
        self._max_idle = max_idle
        self._lines: dict[bytes, Line] = {}
        self._homes: dict[ClientConnection, Line | None] = {}
        """Each connection's line; None for one that is not to be used again."""
        self._idle: dict[ClientConnection, float] = {}
        """Since when, by the wheel's time; the longest idle first."""
        self._sweep: set[Expires] | None = None

    def __len__(self) -> int:
        return len(self._homes)

    def open(self, exchange: Exchange) -> None:
        request = exchange.request
        if exchange.reason is not None:
            return
        if request.is_lonely:
            self._open_new(exchange, None)
            return
        line = self._line_of(request)
        if line.ready:
            connection = line.ready.popitem()[0]
            del self._idle[connection]
            exchange.attach(connection.open(exchange))
        else:
            self._open_new(exchange, line)

    def open_fresh(self, exchange: Exchange) -> None:
        request = exchange.request
        self._open_new(exchange, None if request.is_lonely else self._line_of(request))

    def connect(self) -> None:
        """Nothing: HTTP/1 connections are made for requests, whose authority they keep."""

    def release(self, connection: ClientConnection) -> None:
        line = self._homes.get(connection)
        if line is None or len(self._idle) >= self._max_idle:
            connection.close()
            return
        line.ready[connection] = None
        self._idle[connection] = self._wheel.now()
        if self._sweep is None:
            self._sweep = self._wheel.arm(self, self._wheel.ticks(self._idle_timeout_s))

    def retire(self, connection: ClientConnection) -> None:
        if connection not in self._homes:
            return
        line = self._homes.pop(connection)
        self._idle.pop(connection, None)
        if line is not None:
            line.ready.pop(connection, None)
            line.count -= 1
            if not line.count:
                self._lines.pop(line.key, None)
        if not self._homes and self.on_empty is not None:
            self.on_empty()

    def close(self, reason: Reason) -> None:
        for connection in list(self._homes):
            connection.close()

    def expired(self) -> None:
        """Of the wheel: close what has been idle for too long, and come again for the next."""
        self._sweep = None
        now = self._wheel.now()
        while self._idle:
            connection, since = next(iter(self._idle.items()))
            left_s = since + self._idle_timeout_s - now
            if left_s > 0:
                self._sweep = self._wheel.arm(self, self._wheel.ticks(left_s))
                return
            connection.close()
            self._idle.pop(connection, None)

    def _line_of(self, request: RequestHead) -> Line:
        key = b"//" + request.authority if request.is_absolute else request.authority
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(key)
        return line

    def _open_new(self, exchange: Exchange, line: Line | None) -> None:
        connection = self._dial(self)
        self._homes[connection] = line
        if line is not None:
            line.count += 1
        exchange.attach(connection.open(exchange))
