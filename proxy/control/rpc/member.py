"""Member: one address of a controller: its connections, its load, and whether it may be asked now.

A member whose connection could not be made waits for its next backoff
step and is not picked meanwhile; connecting starts the steps anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from proxy.balance.load.ewma import PeakEwma
from proxy.control.rpc.settings import ChannelSettings, Dial
from proxy.core.address.addr import Addr
from proxy.core.codec import Wire
from proxy.core.failure.reason import Reason
from proxy.core.log import logger
from proxy.core.loop.reactor import Reactor
from proxy.http import grpc
from proxy.http.grpc import Status
from proxy.http.h2.client import H2Client
from proxy.http.pool import ClientConnection, Pool

_log: Final = logger(__name__)

_DEFAULT_RTT_S: Final = 0.03
_DECAY_S: Final = 10.0


class CallScope(Protocol):
    """Counts calls (docs/linkerd/metrics.md, section 3.2); metrics.RequestScope is one."""

    def request(self) -> None: ...

    def response_began(self, status: int, latency_s: float) -> None: ...

    def ended(self, status: int, is_success: bool, grpc_status: str, error: str) -> None: ...


class Controller(Protocol):
    """What a member uses of its channel."""

    @property
    def settings(self) -> ChannelSettings: ...

    @property
    def reactor(self) -> Reactor: ...

    @property
    def dial(self) -> Dial: ...

    @property
    def scope(self) -> CallScope | None: ...

    def is_reached(self) -> None:
        """A connection was made."""

    def is_lost(self, why: str) -> None:
        """This address could not be connected to."""


class Member:
    __slots__ = ("addr", "pool", "load", "_channel", "_on_ready", "_failures", "_timer", "_is_gone", "_trouble")

    def __init__(self, channel: Controller, addr: Addr, on_ready: Callable[[Member, bool], None]) -> None:
        self.addr = addr
        self.pool = Pool(self._dial)
        self.load = PeakEwma(_DEFAULT_RTT_S, _DECAY_S, channel.reactor.clock())
        self._channel = channel
        self._on_ready = on_ready
        self._failures = 0
        self._timer: Any = None
        """The loop's handle, while the member waits to be tried again."""
        self._is_gone = False
        self._trouble = "it cannot be connected to"
        """Why the last attempt failed."""

    def _dial(self, pool: Pool) -> ClientConnection:
        channel = self._channel
        settings = channel.settings
        options = settings.dial._replace(on_connected=self.succeeded, on_failed=self._say_why)

        def make_codec(wire: Wire) -> H2Client:
            return H2Client(wire, pool, settings.http2, channel.reactor.wheel)

        return cast(H2Client, channel.dial(self.addr, make_codec, options))

    def _say_why(self, text: str) -> None:
        self._trouble = text
        _log.warning("%s: failed to connect to %s: %s", self._channel, self.addr, text)

    def succeeded(self) -> None:
        self._failures = 0
        self._channel.is_reached()

    def failed(self) -> None:
        """A connection could not be made. Several calls may report the same connection."""
        # All calls of one connection fail together and each reports it: that is one failure, and one step of the
        # backoff.
        if self._timer is None and not self._is_gone:
            wait_s = self._channel.settings.backoff.wait_s(self._failures)
            self._failures += 1
            self._timer = self._channel.reactor.loop.call_later(wait_s, self._on_backoff_over)
            self._on_ready(self, False)
            self._channel.is_lost(self._trouble)

    def _on_backoff_over(self) -> None:
        self._timer = None
        self._on_ready(self, True)

    def close(self) -> None:
        """It is no longer an address of the controller; running calls go on."""
        self._is_gone = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.pool.close(Reason.SHUTDOWN)

    # ---- load and counts

    def sent(self) -> None:
        self.load.pending += 1
        scope = self._channel.scope
        if scope is not None:
            scope.request()

    def answered(self, sent_at: float, outcome: int) -> None:
        """`outcome` is one of those of balance.load."""
        now = self._channel.reactor.clock()
        self.load.end(now - sent_at, now, outcome)

    def count_began(self, http_status: int, sent_at: float) -> None:
        scope = self._channel.scope
        if scope is not None:
            scope.response_began(http_status, self._channel.reactor.clock() - sent_at)

    def count_end(self, http_status: int, status: Status) -> None:
        scope = self._channel.scope
        if scope is None:
            return
        if http_status:
            scope.ended(http_status, status.code not in grpc.FAILURES, str(status.code), "")
        else:
            scope.ended(0, False, "", "unclassified")

    def count_left(self, http_status: int) -> None:
        """The response was not read to its end: count a success of unknown status, as Linkerd does."""
        scope = self._channel.scope
        if scope is not None:
            scope.ended(http_status, True, str(grpc.UNKNOWN), "")
