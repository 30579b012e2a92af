"""H1Pool: the HTTP/1 connections to one endpoint, each kept for one authority and one form of target.

It works like Pool, with two differences: a request gets only connections that
carried its own authority before (docs/linkerd/outbound.md, section 9.3), and one
that must not share a connection gets a new one, which is closed after it. Opening, releasing and retiring are O(1)
in the number of connections and of authorities; the sweep, one slot in the
wheel for all, looks at each authority once in an idle timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.core.loop.timers import Timer, Wheel
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.http.pool import ClientConnection, Pool
from proxy.http.repeat.repeat import is_idempotent

IDLE_TIMEOUT_S: Final = 3.0
"""The same as linkerd2-proxy's."""
MAX_IDLE: Final = 1 << 30


class AuthorityGroup:
    """The connections that serve one authority."""

    __slots__ = ("key", "ready", "count")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.ready: dict[ClientConnection, float] = {}
        """Since when each connection is idle, by the wheel's time; the longest idle first."""
        self.count = 0
        """The number of its connections, ready or busy."""


class H1Pool(Pool):
    __slots__ = ("_wheel", "_idle_timeout_s", "_max_idle", "_groups", "_connections", "_idle", "_timer")

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
        self._groups: dict[bytes, AuthorityGroup] = {}
        self._connections: dict[ClientConnection, AuthorityGroup | None] = {}
        """Each connection's group; None for one that is not to be used again."""
        self._idle = 0
        self._timer: Timer | None = None
        """Armed for the next sweep while a connection is idle."""

    def __len__(self) -> int:
        return len(self._connections)

    def open(self, attempt: Attempt) -> None:
        request = attempt.head
        exchange = attempt.exchange
        if exchange.reason is not None:
            return
        if request.needs_own_connection:
            self._open_new(attempt, None)
            return
        group = self._groups.get(b"//" + request.authority if request.is_absolute else request.authority)
        if group is not None and not attempt.is_fresh:
            ready = group.ready
            while ready:
                # The one that was used last: its peer is the least likely to have closed it, and those that are not
                # needed grow old together.
                connection, since = ready.popitem()
                self._idle -= 1
                # What may be sent twice needs no look at the connection.
                if (
                    request.method == b"GET" and exchange.request_ended and not connection.keep_alive_s
                ) or self._is_usable(connection, since, exchange):
                    connection.open(attempt)
                    return
                # Not put back: its peer has closed it, or is about to.
                connection.close()
        self._open_new(attempt, self._group_of(request))

    def _is_usable(self, connection: ClientConnection, since: float, exchange: Exchange) -> bool:
        keep_alive_s = connection.keep_alive_s
        if keep_alive_s and self._wheel.now_s - since > keep_alive_s - min(1.0, keep_alive_s / 2):
            return False  # its peer has announced to close it about now
        return is_idempotent(exchange) or not connection.is_stale()

    def connect(self) -> None:
        """Does nothing: HTTP/1 connections are made for requests, because each is kept for one authority."""

    def release(self, connection: ClientConnection) -> None:
        group = self._connections.get(connection)
        if group is None or self._idle >= self._max_idle:
            connection.close()
            return
        group.ready[connection] = self._wheel.now_s
        self._idle += 1
        if self._timer is None:
            # One timer for the pool: a timer for each connection would be armed and cancelled with every request.
            self._timer = self._wheel.after(self._idle_timeout_s, self._sweep)

    def retire(self, connection: ClientConnection) -> None:
        if connection not in self._connections:
            return
        group = self._connections.pop(connection)
        if group is not None:
            if group.ready.pop(connection, None) is not None:
                self._idle -= 1
            group.count -= 1
            if not group.count:
                self._groups.pop(group.key, None)
        if not self._connections and self.on_empty is not None:
            self.on_empty()

    def close(self, reason: Reason) -> None:
        for connection in list(self._connections):
            connection.close()

    def _sweep(self) -> None:
        """Close connections that have been idle for too long, and arm the timer for the next."""
        now = self._wheel.now_s
        next_s = self._idle_timeout_s
        for group in list(self._groups.values()):
            while group.ready:
                connection, since = next(iter(group.ready.items()))
                left_s = since + self._idle_timeout_s - now
                if left_s > 0:
                    next_s = min(next_s, left_s)
                    break
                connection.close()
        self._timer = self._wheel.after(next_s, self._sweep) if self._idle else None

    def _group_of(self, request: RequestHead) -> AuthorityGroup | None:
        """The connections for this request's authority; None if it is too long to be a key: the request's connection
        is used once.
        """
        if len(request.authority) > limits.REMEMBERED_TEXT_BYTES:
            return None
        key = b"//" + request.authority if request.is_absolute else request.authority
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = AuthorityGroup(key)
        return group

    def _open_new(self, attempt: Attempt, group: AuthorityGroup | None) -> None:
        connection = self._dial(self)
        self._connections[connection] = group
        if group is not None:
            group.count += 1
        connection.open(attempt)
